#include "model/step_ring.h"

#include "base/check.h"
#include "base/propagate.h"

namespace nibble::model {

void StepRing::lay_out(const Limits& limits, Arena& arena) {
  for (Step& step : steps_) {
    step.inputs = arena.take<std::byte>(limits.input_bytes);
    step.sample_block = arena.take<std::byte>(limits.sample_bytes);
    step.bad_rows = arena.take<std::int32_t>(limits.num_notes);
    step.tokens = arena.take<std::int32_t>(limits.max_logit_rows);
  }
  logits_ = arena.take<float>(limits.max_logit_rows * limits.vocab);
}

Status StepRing::create(Device& device, const Limits& limits) {
  device_ = &device;
  num_notes_ = limits.num_notes;
  Arena size;
  lay_out(limits, size);
  NIBBLE_ASSIGN_OR_RETURN(memory_, device.allocate_pinned(size.bytes()));
  Arena arena(memory_.data());
  lay_out(limits, arena);
  for (Step& step : steps_) {
    NIBBLE_ASSIGN_OR_RETURN(step.done, device.make_event());
  }
  return {};
}

Status StepRing::send_back(const std::int32_t* tokens, std::int32_t num_tokens,
                           const std::int32_t* bad_rows, Stream stream) {
  NIBBLE_CHECK(num_started_ < kMostStartedSteps, num_started_);
  Step& step = steps_[next_];
  step.num_tokens = num_tokens;
  if (num_tokens > 0) {
    NIBBLE_RETURN_IF_ERROR(
        device_->copy(step.tokens, tokens, std::int64_t{4} * num_tokens, stream));
  }
  NIBBLE_RETURN_IF_ERROR(device_->copy(step.bad_rows, bad_rows, 4 * num_notes_, stream));
  NIBBLE_RETURN_IF_ERROR(device_->record(step.done, stream));
  next_ = (next_ + 1) % steps_.size();
  ++num_started_;
  return {};
}

Result<StepRing::Done> StepRing::finish() {
  NIBBLE_CHECK(num_started_ > 0, num_started_);
  const auto started = static_cast<std::size_t>(num_started_--);
  const Step& step = steps_[(next_ + steps_.size() - started) % steps_.size()];
  NIBBLE_RETURN_IF_ERROR(device_->wait(step.done));
  return Done{.tokens = {step.tokens, static_cast<std::size_t>(step.num_tokens)},
              .bad_rows = step.bad_rows};
}

}  // namespace nibble::model
