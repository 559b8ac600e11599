// Copies large host arrays, mapped files among them, to a device: reading one piece into pinned
// memory runs beside the transfer of the pieces before it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "nibble/status.h"
#include "tensor/device.h"
#include "tensor/exec.h"

namespace nibble {

class Uploader {
 public:
  // `pool` reads; null: the calling thread alone.
  static Result<Uploader> create(Device& device, ThreadPool* pool);

  // `from` has been read on return; `to` is filled once finish() has returned.
  Status copy(void* to, const void* from, std::int64_t bytes);
  Status finish();
  std::int64_t bytes() const { return bytes_; }  // copied so far

 private:
  static constexpr int kSlots = 4;
  static constexpr std::int64_t kSlotBytes = std::int64_t{16} << 20U;

  struct Slot {
    std::byte* memory = nullptr;
    Device::Event sent;
    bool is_used = false;
  };

  Device* device_ = nullptr;
  ThreadPool* pool_ = nullptr;
  Device::OwnedStream stream_;
  Device::PinnedMemory memory_;
  std::array<Slot, kSlots> slots_;
  int next_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace nibble
