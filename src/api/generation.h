// One request on its way: token events in, deltas out, a response with timings at the end. Shared
// by the engine of one request and the service of many.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "api/answer.h"
#include "api/text_model.h"
#include "nibble/request.h"
#include "nibble/status.h"

namespace nibble {

class Generation {
 public:
  using Clock = std::chrono::steady_clock;

  // `prepared` gives its format and what is reported of its tokens; `on_delta` must outlive this.
  Generation(const Request& request, const PreparedRequest& prepared, const DeltaCallback& on_delta,
             Clock::time_point submitted);

  // Computing began: until now the request waited.
  void start(Clock::time_point now);
  // False when the sequence is over: by its last token, a failure, a stop string or the callback.
  bool push(const engine::TokenEvent& event, Clock::time_point now);
  // Once. The response so far when `was_aborted` or the callback gave up; the failure if there was
  // one. `model` computed it.
  Result<Response> finish(bool was_aborted, const model::Model& model);

  std::int32_t num_prompt() const { return num_prompt_; }
  std::int32_t num_generated() const { return num_generated_; }
  // From the token before, or from the submission; of the last token pushed.
  double last_gap_ms() const { return last_gap_ms_; }

 private:
  Answer answer_;
  std::shared_ptr<PromptScores> scores_;
  std::uint64_t seed_ = 0;
  std::int32_t num_prompt_ = 0;
  std::int32_t num_generated_ = 0;
  std::int32_t num_cached_ = 0;
  std::uint64_t kernels_ = 0;
  double last_gap_ms_ = 0.0;
  Timings timings_;
  Clock::time_point submitted_;
  Clock::time_point started_;
  Clock::time_point last_;
  std::optional<Clock::time_point> first_;
  Status failure_;
};

}  // namespace nibble
