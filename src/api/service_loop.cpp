#include "api/service_loop.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace nibble {
namespace {

// Idle pages that only keep a prefix are not used: whoever wants them has them.
ServiceStats::Pages pages_of(const engine::PagedCache& cache, model::CacheGroup group) {
  const std::int32_t total = cache.pool(group).num_pages();
  return {.used = total - cache.num_available(group),
          .total = total,
          .prefixes = cache.tree().num_idle(group)};
}

}  // namespace

// The request, with its prompt, is not kept.
ServiceLoop::Job::Job(const Request& request, PreparedRequest checked, RequestSink where)
    : prepared(std::move(checked)),
      sink(std::move(where)),
      generation(request, prepared, sink.on_delta, Clock::now()) {}

ServiceLoop::ServiceLoop(TextModel model, std::int32_t max_active)
    : model_(std::move(model)), max_active_(max_active) {
  publish();
  thread_ = std::thread([this] { run(); });
}

ServiceLoop::~ServiceLoop() { stop(); }

Status ServiceLoop::refusal(std::size_t num_more) const {
  switch (state_) {
    case ServiceState::kServing: break;
    case ServiceState::kDraining:
    case ServiceState::kStopped: return {Code::kCancelled, "the service is shutting down"};
    case ServiceState::kFailed: return failure_;
  }
  if (static_cast<std::size_t>(num_active_) + num_more > static_cast<std::size_t>(max_active_)) {
    return error(Code::kExhausted, "the queue is full: {} requests are running or waiting",
                 num_active_);
  }
  return {};
}

Result<RequestId> ServiceLoop::submit(const Request& request, RequestSink sink) {
  std::vector<RequestSink> sinks;
  sinks.push_back(std::move(sink));
  NIBBLE_ASSIGN_OR_RETURN(const std::vector<RequestId> ids, submit(request, std::move(sinks)));
  return ids.front();
}

Result<std::vector<RequestId>> ServiceLoop::submit(const Request& request,
                                                   std::vector<RequestSink> sinks) {
  const std::size_t count = sinks.size();
  NIBBLE_CHECK(count > 0);
  {
    const std::lock_guard lock(mutex_);
    NIBBLE_RETURN_IF_ERROR(refusal(count));  // before the prompt costs anything
  }
  NIBBLE_ASSIGN_OR_RETURN(std::vector<PreparedRequest> prepared, model_.prepare(request, count));
  Jobs jobs;
  for (std::size_t choice = 0; choice < count; ++choice) {
    jobs.push_back(
        std::make_unique<Job>(request, std::move(prepared[choice]), std::move(sinks[choice])));
  }
  std::vector<RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    NIBBLE_RETURN_IF_ERROR(refusal(count));
    num_active_ += static_cast<std::int32_t>(count);
    for (auto& job : jobs) {
      ids.push_back(job->id = next_id_++);
      inbox_.push_back(std::move(job));
    }
  }
  arrival_.notify_one();
  return ids;
}

void ServiceLoop::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == ServiceState::kStopped) {
      return;
    }
    cancels_.push_back(id);
  }
  arrival_.notify_one();
}

ServiceStats ServiceLoop::stats() const {
  const std::lock_guard lock(mutex_);
  ServiceStats out = stats_;
  out.state = state_;
  out.failure = failure_;
  out.waiting += static_cast<std::int32_t>(inbox_.size());
  return out;
}

void ServiceLoop::drain() {
  const std::lock_guard lock(mutex_);
  if (state_ == ServiceState::kServing) {
    state_ = ServiceState::kDraining;
  }
}

bool ServiceLoop::wait_until_idle(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return departure_.wait_for(lock, timeout, [&] { return num_active_ == 0; });
}

void ServiceLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    state_ = ServiceState::kStopped;
  }
  arrival_.notify_one();
  const std::lock_guard lock(joining_);
  if (thread_.joinable()) {
    thread_.join();
  }
}

void ServiceLoop::run() {
  Jobs arrived;
  std::vector<RequestId> cancelled;
  while (take(arrived, cancelled)) {
    for (auto& job : arrived) {
      begin(std::move(job));
    }
    arrived.clear();
    for (const RequestId id : cancelled) {
      const auto found = sequences_.find(id);
      if (found != sequences_.end()) {
        end(*jobs_.at(found->second), true);
      }
    }
    cancelled.clear();
    if (model_.engine->has_work()) {
      step();
    }
    publish();
    deliver_ended();
  }
  for (auto& job : arrived) {
    begin(std::move(job));
  }
  abort_all();
  publish();
  deliver_ended();
}

// Waits while there is nothing to do. False when stopped.
bool ServiceLoop::take(Jobs& arrived, std::vector<RequestId>& cancelled) {
  std::unique_lock lock(mutex_);
  arrival_.wait(lock, [&] {
    return !inbox_.empty() || !cancels_.empty() || state_ == ServiceState::kStopped ||
           model_.engine->has_work();
  });
  std::swap(arrived, inbox_);
  std::swap(cancelled, cancels_);
  return state_ != ServiceState::kStopped;
}

void ServiceLoop::begin(std::unique_ptr<Job> job) {
  Job& begun = *job;
  Result<engine::SequenceId> sequence = model_.engine->add(std::move(begun.prepared.tokens));
  if (!sequence) {  // `prepare` has let pass what the engine refuses
    ended_.push_back({std::move(job), sequence.error()});
    return;
  }
  begun.sequence = *sequence;
  sequences_[begun.id] = begun.sequence;
  jobs_[begun.sequence] = std::move(job);
}

void ServiceLoop::step() {
  const Clock::time_point began = Clock::now();
  std::vector<engine::TokenEvent> events;
  model_.engine->step(events);
  mark_started(began);
  for (const engine::TokenEvent& event : events) {
    if (event.failure.code() == Code::kDevice) {
      fail(event.failure);
      return;
    }
    push(event, began);
  }
}

// Those of the step that go on.
void ServiceLoop::mark_started(Clock::time_point now) {
  for (const engine::Sequence* sequence : model_.engine->scheduler().scheduled()) {
    Job& job = *jobs_.at(sequence->id);
    if (!std::exchange(job.is_started, true)) {
      job.generation.start(now);
    }
  }
}

void ServiceLoop::push(const engine::TokenEvent& event, Clock::time_point step_began) {
  const auto found = jobs_.find(event.sequence);
  if (found == jobs_.end()) {
    return;
  }
  Job& job = *found->second;
  if (!std::exchange(job.is_started, true)) {
    job.generation.start(step_began);
  }
  const std::int32_t generated = job.generation.num_generated();
  const bool goes_on = job.generation.push(event, Clock::now());
  if (job.generation.num_generated() > generated) {
    counters_.prompt_tokens += generated == 0 ? job.generation.num_prompt() : 0;
    ++counters_.generation_tokens;
    if (job.sink.on_token) {
      job.sink.on_token(job.generation.num_generated(), job.generation.last_gap_ms());
    }
  }
  if (!goes_on) {
    end(job, false);
  }
}

// The engine forgets the sequence; its end is delivered with the round's.
void ServiceLoop::end(Job& job, bool was_aborted) {
  model_.engine->cancel(job.sequence);
  sequences_.erase(job.id);
  Result<Response> result = job.generation.finish(was_aborted, model_.engine->model());
  auto owned = jobs_.extract(job.sequence);
  ended_.push_back({std::move(owned.mapped()), std::move(result)});
}

void ServiceLoop::fail(const Status& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != ServiceState::kStopped) {
      state_ = ServiceState::kFailed;
    }
    failure_ = failure;
    for (auto& job : inbox_) {
      ended_.push_back({std::move(job), failure});
    }
    inbox_.clear();
  }
  while (!jobs_.empty()) {
    Job& job = *jobs_.begin()->second;
    end(job, true);
    ended_.back().result = failure;
  }
}

void ServiceLoop::abort_all() {
  while (!jobs_.empty()) {
    end(*jobs_.begin()->second, true);
  }
}

void ServiceLoop::publish() {
  const engine::Scheduler& scheduler = model_.engine->scheduler();
  counters_.running = scheduler.num_running();
  counters_.waiting = scheduler.num_waiting();
  counters_.full_pages = pages_of(scheduler.cache(), model::CacheGroup::kFull);
  counters_.window_pages = pages_of(scheduler.cache(), model::CacheGroup::kWindow);
  counters_.preemptions = scheduler.num_preemptions();
  counters_.prefix_queried_tokens = scheduler.counters().queried_tokens;
  counters_.prefix_hit_tokens = scheduler.counters().hit_tokens;
  counters_.ended += static_cast<std::int64_t>(ended_.size());
  const std::lock_guard lock(mutex_);
  stats_ = counters_;
}

void ServiceLoop::deliver_ended() {
  if (ended_.empty()) {
    return;
  }
  for (Ended& ended : ended_) {
    ended.job->sink.on_end(std::move(ended.result));
  }
  const auto count = static_cast<std::int32_t>(ended_.size());
  ended_.clear();
  {
    const std::lock_guard lock(mutex_);
    num_active_ -= count;
  }
  departure_.notify_all();
}

}  // namespace nibble
