// The host's side of the steps of a device: what is copied there before a step and back after it,
// in pinned memory. A step is filled while the one before it runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/model.h"
#include "nibble/status.h"
#include "tensor/arena.h"
#include "tensor/device.h"

namespace nibble::model {

class StepRing {
 public:
  struct Limits {
    std::int64_t input_bytes = 0;
    std::int64_t sample_bytes = 0;
    std::int64_t num_notes = 0;  // of bad rows: a word a layer, and one
    std::int64_t max_logit_rows = 0;
    std::int64_t vocab = 0;
  };
  // Takes pinned memory; `device` must outlive the ring.
  Status create(Device& device, const Limits& limits);

  // Of the step to be enqueued next.
  std::byte* inputs() const { return steps_[next_].inputs; }
  std::byte* sample_block() const { return steps_[next_].sample_block; }
  std::int32_t* bad_rows() const { return steps_[next_].bad_rows; }
  // [max_logit_rows, vocab], for whoever waits.
  float* logits() const { return logits_; }

  int num_started() const { return num_started_; }
  // Enqueues the way back of what the step left on the device, and goes on to the next one.
  Status send_back(const std::int32_t* tokens, std::int32_t num_tokens,
                   const std::int32_t* bad_rows, Stream stream);

  struct Done {
    std::span<const std::int32_t> tokens;  // valid until the step after the next is sent back
    const std::int32_t* bad_rows = nullptr;
  };
  // Waits for the oldest step sent back.
  Result<Done> finish();

 private:
  struct Step {
    std::byte* inputs = nullptr;
    std::byte* sample_block = nullptr;
    std::int32_t* bad_rows = nullptr;  // [notes]
    std::int32_t* tokens = nullptr;    // [logit rows]
    std::int32_t num_tokens = 0;
    Device::Event done;
  };
  void lay_out(const Limits& limits, Arena& arena);

  Device* device_ = nullptr;
  std::int64_t num_notes_ = 0;
  Device::PinnedMemory memory_;
  std::array<Step, kMostStartedSteps> steps_;
  float* logits_ = nullptr;
  std::size_t next_ = 0;
  int num_started_ = 0;
};

}  // namespace nibble::model
