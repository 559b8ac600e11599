#include "engine/token_engine.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace nibble::engine {

TokenEngine::TokenEngine(std::unique_ptr<model::Model> model, const SchedulerLimits& limits)
    : model_(std::move(model)),
      scheduler_(limits),
      sampler_(model_->config().vocab),
      logits_(static_cast<std::size_t>(model_->can_sample() ? 1 : limits.max_logit_rows) *
              static_cast<std::size_t>(model_->config().vocab)) {
  const model::ModelOptions& options = model_->options();
  NIBBLE_CHECK(limits.max_batch_tokens <= options.max_batch_tokens);
  NIBBLE_CHECK(limits.max_logit_rows <= options.max_logit_rows);
  NIBBLE_CHECK(limits.page_size == options.page_size);
}

Status TokenEngine::check(const TokenRequest& request) const {
  const std::int32_t vocab = model_->config().vocab;
  const auto check_ids = [&](const char* field, const std::vector<std::int32_t>& ids) -> Status {
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= vocab) {
        return error(Code::kInvalidArgument, "{}: want ids in 0..{}, found {}", field, vocab - 1,
                     id);
      }
    }
    return {};
  };
  if (request.prompt.empty()) {
    return error(Code::kInvalidArgument, "prompt: want at least 1 token, found 0");
  }
  NIBBLE_RETURN_IF_ERROR(check_ids("prompt", request.prompt));
  NIBBLE_RETURN_IF_ERROR(check_ids("stop_token_ids", request.stop_ids));
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    NIBBLE_RETURN_IF_ERROR(check_ids("logit_bias", {id}));
  }
  const std::int32_t limit = model_->options().max_position;
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t needed = length + (request.max_tokens > 0 ? 1 : 0);
  if (needed > limit) {
    return error(Code::kInvalidArgument,
                 "prompt: {} tokens leave no room for an answer in a context of {}", length, limit);
  }
  if (!scheduler_.fits(static_cast<std::int32_t>(needed))) {
    return error(Code::kInvalidArgument,
                 "prompt: {} tokens and an answer do not fit in a cache of {} pages of {} tokens",
                 length, scheduler_.pool(model::CacheGroup::kFull).num_pages(),
                 model_->options().page_size);
  }
  return {};
}

Result<SequenceId> TokenEngine::add(TokenRequest request) {
  NIBBLE_RETURN_IF_ERROR(check(request));
  auto sequence = std::make_unique<Sequence>();
  sequence->id = next_id_++;
  sequence->ids = request.prompt;
  if (request.sampling.has_penalties()) {
    for (const std::int32_t id : request.prompt) {
      sequence->count(id, false);
    }
  }
  sequence->request = std::move(request);
  scheduler_.add(sequence.get());
  const SequenceId id = sequence->id;
  sequences_.emplace(id, std::move(sequence));
  return id;
}

void TokenEngine::cancel(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found != sequences_.end()) {
    end(found->second.get());
  }
}

void TokenEngine::end(Sequence* sequence) {
  scheduler_.remove(sequence);
  sequences_.erase(sequence->id);
}

void TokenEngine::fail(Sequence* sequence, const Status& status, std::vector<TokenEvent>& events) {
  events.push_back({.sequence = sequence->id, .finish = Finish::kFailed, .failure = status});
  scheduler_.discard(sequence);  // NaN may be in its pages
  sequences_.erase(sequence->id);
}

void TokenEngine::step(std::vector<TokenEvent>& events) {
  if (!model_->can_sample()) {
    step_on_host(events);
    return;
  }
  if (started_.empty() && !start(events)) {
    return;
  }
  if (started_.front().may_run_ahead) {
    (void)start(events);  // nothing more to compute is no matter
  }
  finish(events);
}

void TokenEngine::step_on_host(std::vector<TokenEvent>& events) {
  const model::BatchPlan& plan = scheduler_.schedule();
  if (plan.num_tokens() == 0) {
    return;
  }
  const Status status = model_->forward(plan, logits_.span());
  if (!status.ok()) {
    const std::vector<Sequence*> failed(scheduler_.scheduled().begin(),
                                        scheduler_.scheduled().end());
    for (Sequence* sequence : failed) {
      fail(sequence, status, events);
    }
    return;
  }
  note_kernels();
  scheduler_.commit();
  finish_rows(events);
}

void TokenEngine::note_kernels() {
  for (Sequence* sequence : scheduler_.scheduled()) {
    sequence->kernels |= model_->kernels_of_step();
  }
}

// Walks the logit rows of the step, which stand in the order of the sequences.
void TokenEngine::finish_rows(std::vector<TokenEvent>& events) {
  const auto vocab = static_cast<std::size_t>(model_->config().vocab);
  finishing_.assign(scheduler_.scheduled().begin(), scheduler_.scheduled().end());
  std::size_t row = 0;
  for (Sequence* sequence : finishing_) {
    const bool is_complete = sequence->num_remaining() == 0;
    std::span<float> last;
    const std::int32_t scored_until = sequence->wants_prompt_logits()
                                          ? std::min(sequence->num_computed, sequence->num_prompt())
                                          : 0;
    for (; sequence->num_scored < scored_until; ++sequence->num_scored, ++row) {
      last = logits_.span().subspan(row * vocab, vocab);
      sequence->request.on_prompt_logits(sequence->num_scored, last);
    }
    if (!is_complete) {
      continue;
    }
    if (last.empty()) {
      last = logits_.span().subspan(row++ * vocab, vocab);
    }
    push(sequence, generate(*sequence, last), events);
  }
}

void TokenEngine::push(Sequence* sequence, Result<TokenEvent> event,
                       std::vector<TokenEvent>& events) {
  if (!event.has_value()) {
    fail(sequence, event.error(), events);
    return;
  }
  events.push_back(*std::move(event));
  if (events.back().finish != Finish::kNone) {
    end(sequence);
  }
}

bool TokenEngine::start(std::vector<TokenEvent>& events) {
  const model::BatchPlan& plan = scheduler_.schedule();
  if (plan.num_tokens() == 0) {
    return false;
  }
  scheduler_.commit();
  StartedStep step;
  batch_.rows.clear();
  batch_.counts.clear();
  batch_.logit_bias.clear();
  for (const Sequence* sequence : scheduler_.scheduled()) {
    add_started(*sequence, step, batch_);
  }
  const Status status = model_->start(plan, batch_);
  if (!status.ok()) {
    const std::vector<Sequence*> failed(scheduler_.scheduled().begin(),
                                        scheduler_.scheduled().end());
    for (Sequence* sequence : failed) {
      fail(sequence, status, events);
    }
    return false;
  }
  note_kernels();
  if (step.may_run_ahead) {
    add_stand_ins(step);
  }
  started_.push_back(std::move(step));
  return true;
}

// Sequences that go on whatever their token is take part in the next step.
void TokenEngine::add_stand_ins(StartedStep& step) {
  for (StartedRow& row : step.rows) {
    Sequence& sequence = *sequences_.at(row.sequence);
    if (row.is_complete && !ends_by_length(sequence, row.index + 1)) {
      sequence.ids.push_back(-1 - row.token_row());
      row.has_stand_in = true;
    }
  }
}

void TokenEngine::finish(std::vector<TokenEvent>& events) {
  const StartedStep step = std::move(started_.front());
  started_.pop_front();
  const Result<std::span<const std::int32_t>> tokens = model_->finish();
  if (tokens) {
    for (const StartedRow& row : step.rows) {
      const auto at = static_cast<std::size_t>(row.token_row());
      finish_row(row, row.is_complete ? (*tokens)[at] : -1, events);
    }
    return;
  }
  // A step that runs already has read what this one left.
  std::vector<StartedStep> broken = {step};
  for (; !started_.empty(); started_.pop_front()) {
    (void)model_->finish();
    broken.push_back(std::move(started_.front()));
  }
  for (const StartedStep& one : broken) {
    for (const StartedRow& row : one.rows) {
      if (const auto found = sequences_.find(row.sequence); found != sequences_.end()) {
        fail(found->second.get(), tokens.error(), events);
      }
    }
  }
}

void TokenEngine::finish_row(const StartedRow& row, std::int32_t token,
                             std::vector<TokenEvent>& events) {
  const auto found = sequences_.find(row.sequence);
  if (found == sequences_.end()) {
    return;  // it ended, or was cancelled, while the step ran
  }
  Sequence* sequence = found->second.get();
  for (std::int32_t i = 0; i < row.num_scored; ++i) {
    const Status copied = model_->copy_logits(row.first_logit_row + i, logits_.span());
    if (!copied.ok()) {
      fail(sequence, copied, events);
      return;
    }
    sequence->request.on_prompt_logits(sequence->num_scored++, logits_.span());
  }
  if (row.is_complete) {
    push(sequence, token_of(*sequence, row, token), events);
  }
}

Result<TokenEvent> TokenEngine::token_of(Sequence& sequence, const StartedRow& row,
                                         std::int32_t token) {
  if (sequence.request.max_tokens == 0) {
    return generate(sequence, {});
  }
  if (row.is_on_host) {
    NIBBLE_RETURN_IF_ERROR(model_->copy_logits(row.token_row(), logits_.span()));
    return generate(sequence, logits_.span());
  }
  if (token < 0) {
    return error(Code::kInternal, "no token can be drawn from {} logits: NaN, +inf or all -inf",
                 model_->config().vocab);
  }
  TokenEvent event{.sequence = sequence.id,
                   .token = token,
                   .cached_tokens = sequence.num_cached,
                   .kernels = sequence.kernels};
  take(sequence, row.index, event);
  return event;
}

Result<TokenEvent> TokenEngine::generate(Sequence& sequence, std::span<float> logits) {
  const TokenRequest& request = sequence.request;
  TokenEvent event{
      .sequence = sequence.id, .cached_tokens = sequence.num_cached, .kernels = sequence.kernels};
  if (request.max_tokens == 0) {
    event.finish = Finish::kLength;
    return event;
  }
  std::vector<float> raw;  // sampling changes the row
  if (request.top_logprobs >= 0) {
    raw.assign(logits.begin(), logits.end());
  }
  NIBBLE_ASSIGN_OR_RETURN(event.token, sampler_.next_token(sequence, logits));
  if (request.top_logprobs >= 0) {
    NIBBLE_ASSIGN_OR_RETURN(event.logprob, logprob_of(raw, event.token, request.top_logprobs));
  }
  take(sequence, sequence.num_ids(), event);
  return event;
}

// Makes the event's token the id at `index`, where a stand-in may be, and says whether the sequence
// ends with it. Ids behind it are stand-ins of a step that runs already.
void TokenEngine::take(Sequence& sequence, std::int32_t index, TokenEvent& event) const {
  const TokenRequest& request = sequence.request;
  const auto at = static_cast<std::size_t>(index);
  sequence.ids.resize(std::max(sequence.ids.size(), at + 1));
  sequence.ids[at] = event.token;
  if (request.sampling.has_penalties()) {
    sequence.count(event.token, true);
  }
  const bool is_stop = std::find(request.stop_ids.begin(), request.stop_ids.end(), event.token) !=
                       request.stop_ids.end();
  if (is_stop) {
    event.finish = Finish::kStop;
  } else if (ends_by_length(sequence, index + 1)) {
    event.finish = Finish::kLength;
  }
}

bool TokenEngine::ends_by_length(const Sequence& sequence, std::int32_t num_ids) const {
  return num_ids - sequence.num_prompt() >= sequence.request.max_tokens ||
         num_ids >= model_->options().max_position || !scheduler_.fits(num_ids + 1);
}

}  // namespace nibble::engine
