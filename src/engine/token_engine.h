// Continuous batching over one model. Token ids in, token ids out.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/device_steps.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/token_request.h"
#include "model/model.h"
#include "nibble/status.h"
#include "tensor/buffer.h"

namespace nibble::engine {

// One thread owns an engine.
class TokenEngine {
 public:
  // `limits` must agree with the model's options (rows, pages, page size).
  TokenEngine(std::unique_ptr<model::Model> model, const SchedulerLimits& limits);

  const model::Model& model() const { return *model_; }
  const Scheduler& scheduler() const { return scheduler_; }
  const MaskCost& mask_cost() const { return sampler_.mask_cost(); }

  // kInvalidArgument: empty prompt, an id outside the vocabulary (field and value named), or a
  // prompt that leaves no room for a token in the context or in the whole cache. Any thread.
  Status check(const TokenRequest& request) const;
  // Queues a request that passes `check`.
  Result<SequenceId> add(TokenRequest request);
  // Frees everything at once; unknown or finished ids are ignored.
  void cancel(SequenceId id);
  bool has_work() const { return scheduler_.has_work() || !started_.empty(); }

  // Finishes one step and appends its events; where the model chooses tokens itself, the next step
  // runs already when this returns, and what is added meanwhile takes part in the one after it. A
  // failed forward pass ends the sequences of the step with Finish::kFailed; others go on.
  void step(std::vector<TokenEvent>& events);

 private:
  void step_on_host(std::vector<TokenEvent>& events);
  void note_kernels();  // of the step, for its sequences
  void finish_rows(std::vector<TokenEvent>& events);
  // False when there is nothing to compute, or it failed.
  bool start(std::vector<TokenEvent>& events);
  void add_stand_ins(StartedStep& step);
  void finish(std::vector<TokenEvent>& events);
  void finish_row(const StartedRow& row, std::int32_t token, std::vector<TokenEvent>& events);
  Result<TokenEvent> token_of(Sequence& sequence, const StartedRow& row, std::int32_t token);
  Result<TokenEvent> generate(Sequence& sequence, std::span<float> logits);
  void take(Sequence& sequence, std::int32_t index, TokenEvent& event) const;
  bool ends_by_length(const Sequence& sequence, std::int32_t num_ids) const;
  void push(Sequence* sequence, Result<TokenEvent> event, std::vector<TokenEvent>& events);
  void end(Sequence* sequence);
  void fail(Sequence* sequence, const Status& status, std::vector<TokenEvent>& events);

  std::unique_ptr<model::Model> model_;
  Scheduler scheduler_;
  Sampler sampler_;
  Buffer<float> logits_;  // [max_logit_rows, vocab]; one row where the model samples
  model::SampleBatch batch_;
  std::deque<StartedStep> started_;  // oldest first
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> finishing_;  // of the step that is being finished
  SequenceId next_id_ = 1;
};

}  // namespace nibble::engine
