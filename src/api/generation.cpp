#include "api/generation.h"

#include "base/error.h"

namespace nibble {
namespace {

double ms_between(Generation::Clock::time_point begin, Generation::Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

}  // namespace

Generation::Generation(const Request& request, const PreparedRequest& prepared,
                       const DeltaCallback& on_delta, Clock::time_point submitted)
    : answer_(prepared.format, request, on_delta),
      scores_(prepared.scores),
      seed_(prepared.tokens.sampling.seed),
      num_prompt_(static_cast<std::int32_t>(prepared.tokens.prompt.size())),
      submitted_(submitted),
      started_(submitted),
      last_(submitted) {}

void Generation::start(Clock::time_point now) {
  started_ = now;
  timings_.queue_ms = ms_between(submitted_, now);
}

bool Generation::push(const engine::TokenEvent& event, Clock::time_point now) {
  timings_.prefill_ms = ms_between(started_, first_.value_or(now));
  timings_.decode_ms = first_.has_value() ? ms_between(*first_, now) : 0.0;
  first_ = first_.value_or(now);
  last_gap_ms_ = ms_between(last_, now);
  last_ = now;
  num_generated_ += event.token >= 0 ? 1 : 0;
  num_cached_ = event.cached_tokens;
  kernels_ = event.kernels;
  if (event.finish == engine::Finish::kFailed) {
    failure_ = event.failure;
    return false;
  }
  return answer_.push(event) && event.finish == engine::Finish::kNone;
}

Result<Response> Generation::finish(bool was_aborted, const model::Model& model) {
  if (!failure_.ok()) {
    return failure_;
  }
  Response response = answer_.finish(was_aborted);
  response.seed = seed_;
  response.usage.prompt_tokens = num_prompt_;
  response.usage.cached_tokens = num_cached_;
  response.timings = timings_;
  response.kernels = model.kernel_names(kernels_);
  if (scores_ != nullptr) {
    NIBBLE_ASSIGN_OR_RETURN(response.prompt_logprobs, scores_->finish());
  }
  return response;
}

}  // namespace nibble
