// Continuous batching over one model. Token ids in, token ids out.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

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
  bool has_work() const { return scheduler_.has_work(); }

  // Runs one step and appends its events. A failed forward pass ends the sequences of the step with
  // Finish::kFailed; others go on.
  void step(std::vector<TokenEvent>& events);

 private:
  void finish_rows(std::vector<TokenEvent>& events);
  Result<TokenEvent> generate(Sequence& sequence, std::span<float> logits);
  void end(Sequence* sequence);
  void fail(Sequence* sequence, const Status& status, std::vector<TokenEvent>& events);

  std::unique_ptr<model::Model> model_;
  Scheduler scheduler_;
  Sampler sampler_;
  Buffer<float> logits_;  // [max_logit_rows, vocab]
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> finishing_;  // of the step that is being finished
  SequenceId next_id_ = 1;
};

}  // namespace nibble::engine
