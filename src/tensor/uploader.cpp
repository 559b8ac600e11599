#include "tensor/uploader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/propagate.h"
#include "base/thread_pool.h"

namespace nibble {
namespace {

// Below this one thread is done before the others are awake.
constexpr std::int64_t kParallelBytes = std::int64_t{1} << 18U;

void read_piece(ThreadPool* pool, std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (pool == nullptr || bytes < kParallelBytes) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  pool->run_split(bytes, 4096, [&](int /*worker*/, Range range) {
    std::memcpy(to + range.begin, from + range.begin,
                static_cast<std::size_t>(range.end - range.begin));
  });
}

}  // namespace

Result<Uploader> Uploader::create(Device& device, ThreadPool* pool) {
  Uploader out;
  out.device_ = &device;
  out.pool_ = pool;
  NIBBLE_ASSIGN_OR_RETURN(out.stream_, device.make_stream());
  NIBBLE_ASSIGN_OR_RETURN(out.memory_, device.allocate_pinned(kSlots * kSlotBytes));
  for (int i = 0; i < kSlots; ++i) {
    Slot& slot = out.slots_[static_cast<std::size_t>(i)];
    slot.memory = out.memory_.data() + i * kSlotBytes;
    NIBBLE_ASSIGN_OR_RETURN(slot.sent, device.make_event());
  }
  return out;
}

Status Uploader::copy(void* to, const void* from, std::int64_t bytes) {
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  for (std::int64_t at = 0; at < bytes; at += kSlotBytes) {
    Slot& slot = slots_[static_cast<std::size_t>(std::exchange(next_, (next_ + 1) % kSlots))];
    if (slot.is_used) {
      NIBBLE_RETURN_IF_ERROR(device_->wait(slot.sent));
    }
    const std::int64_t piece = std::min(kSlotBytes, bytes - at);
    read_piece(pool_, slot.memory, source + at, piece);
    NIBBLE_RETURN_IF_ERROR(device_->copy(target + at, slot.memory, piece, stream_.get()));
    NIBBLE_RETURN_IF_ERROR(device_->record(slot.sent, stream_.get()));
    slot.is_used = true;
  }
  bytes_ += bytes;
  return {};
}

Status Uploader::finish() { return device_->wait(stream_.get()); }

}  // namespace nibble
