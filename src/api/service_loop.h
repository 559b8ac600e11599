// The engine thread of a service: takes requests from a queue, steps the engine, hands deltas out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "api/generation.h"
#include "api/text_model.h"
#include "nibble/service.h"

namespace nibble {

// The contract is that of nibble::Service.
class ServiceLoop {
 public:
  // `max_active`: requests accepted and not ended.
  ServiceLoop(TextModel model, std::int32_t max_active);
  ~ServiceLoop();
  ServiceLoop(const ServiceLoop&) = delete;
  ServiceLoop& operator=(const ServiceLoop&) = delete;

  const TextModel& model() const { return model_; }
  Result<RequestId> submit(const Request& request, RequestSink sink);
  Result<std::vector<RequestId>> submit(const Request& request, std::vector<RequestSink> sinks);
  void cancel(RequestId id);
  ServiceStats stats() const;
  void drain();
  bool wait_until_idle(std::chrono::milliseconds timeout) const;
  void stop();

 private:
  using Clock = Generation::Clock;

  struct Job {
    Job(const Request& request, PreparedRequest prepared, RequestSink sink);

    RequestId id = 0;
    PreparedRequest prepared;
    RequestSink sink;
    Generation generation;
    engine::SequenceId sequence = 0;
    bool is_started = false;
  };
  using Jobs = std::vector<std::unique_ptr<Job>>;

  // In the engine thread.
  void run();
  bool take(Jobs& arrived, std::vector<RequestId>& cancelled);
  void begin(std::unique_ptr<Job> job);
  void step();
  void mark_started(Clock::time_point now);
  void push(const engine::TokenEvent& event, Clock::time_point step_began);
  void end(Job& job, bool was_aborted);
  void fail(const Status& failure);
  void abort_all();
  void publish();
  void deliver_ended();

  Status refusal(std::size_t num_more) const;  // mutex_ held

  TextModel model_;
  const std::int32_t max_active_;

  // Of the engine thread.
  std::unordered_map<engine::SequenceId, std::unique_ptr<Job>> jobs_;
  std::unordered_map<RequestId, engine::SequenceId> sequences_;
  struct Ended {
    std::unique_ptr<Job> job;
    Result<Response> result;
  };
  std::vector<Ended> ended_;  // of this round
  ServiceStats counters_;

  mutable std::mutex mutex_;
  std::condition_variable arrival_;
  mutable std::condition_variable departure_;
  Jobs inbox_;
  std::vector<RequestId> cancels_;
  ServiceStats stats_;  // as of the last round
  ServiceState state_ = ServiceState::kServing;
  Status failure_;
  RequestId next_id_ = 1;
  std::int32_t num_active_ = 0;

  std::mutex joining_;
  std::thread thread_;
};

}  // namespace nibble
