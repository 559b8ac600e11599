#include "server/generation_job.h"

#include <mutex>
#include <optional>
#include <utility>

#include "server/receipt.h"
#include "server/tool_filter.h"

namespace nibble::server {
namespace {

// Everything but the sinks runs on the exchange's executor.
class RunningJob : public std::enable_shared_from_this<RunningJob> {
 public:
  RunningJob(const Call& call, GenerationJob job)
      : context_(call.context),
        loaded_(call.loaded),
        exchange_(call.exchange),
        path_(call.request.path),
        job_(std::move(job)) {
    for (const Question& question : job_.questions) {
      responses_.resize(responses_.size() + question.num_choices);
    }
  }

  void start();
  std::function<void()> canceller() {
    return [weak = weak_from_this()] {
      if (const auto self = weak.lock()) {
        self->exchange_->post([self] {
          self->is_cancelled_ = true;
          self->cancel_all();
        });
      }
    };
  }

 private:
  struct Arrived {
    std::size_t choice = 0;
    Delta delta;
  };

  RequestSink sink(std::size_t choice, const Request& request);
  void hand_over(std::size_t choice, Delta delta);
  void take_arrived();
  void on_end(std::size_t choice, Result<Response> result);
  void complete();
  void fail(const ApiError& error);
  void cancel_all();
  void send(const std::string& events) { exchange_->send(events); }
  void log(int status) const;

  ApiContext& context_;
  Loaded& loaded_;
  ExchangePtr exchange_;
  std::string path_;
  GenerationJob job_;
  std::vector<std::optional<Response>> responses_;
  std::vector<RequestId> ids_;
  std::size_t num_ended_ = 0;
  bool is_begun_ = false;      // the head of the stream is sent
  bool is_cancelled_ = false;  // on request, not by the service
  bool is_over_ = false;

  // Deltas on their way from the engine's thread.
  std::mutex mutex_;
  std::vector<Arrived> arrived_;
  bool is_awaited_ = false;  // the executor will look
};

void RunningJob::start() {
  // Ends may be posted while this still submits; they run after it, on the same executor.
  std::size_t choice = 0;
  for (const Question& question : job_.questions) {
    std::vector<RequestSink> sinks;
    for (std::size_t i = 0; i < question.num_choices; ++i) {
      sinks.push_back(sink(choice++, question.request));
    }
    const auto ids = loaded_.host->submit(question.request, std::move(sinks));
    if (!ids) {
      fail(from_status(ids.error()));
      return;
    }
    ids_.insert(ids_.end(), ids->begin(), ids->end());
  }
  job_.questions.clear();  // prompts may be large
  exchange_->when_gone([self = shared_from_this()] {
    if (!std::exchange(self->is_over_, true)) {
      self->cancel_all();
      std::string unsent;
      self->job_.form->fail({499, "the client left"}, unsent);  // some keep what they made
      self->log(499);
    }
  });
  exchange_->when_late(context_.options.request_timeout, [self = shared_from_this()] {
    self->fail(
        {504, "the request took longer than the server allows", "timeout_error", "", "timeout"});
  });
  if (job_.is_stream) {
    is_begun_ = true;
    exchange_->begin_stream(
        {.content_type = "text/event-stream; charset=utf-8",
         .headers = {{"cache-control", "no-cache"}, {"x-accel-buffering", "no"}}});
    std::string events;
    job_.form->begin(events);
    send(events);
  }
}

RequestSink RunningJob::sink(std::size_t choice, const Request& request) {
  RequestSink out;
  std::shared_ptr<ToolFilter> filter;
  if (job_.checks_tool_names) {
    filter = std::make_shared<ToolFilter>(std::get<ChatPrompt>(request.prompt).tools);
  }
  const bool is_wanted = job_.is_stream || job_.needs_deltas;
  if (is_wanted || filter != nullptr) {
    // Prompts of ids get their answer's tokens too; without log-probabilities no form tells them.
    const bool tells_tokens = request.top_logprobs >= 0;
    out.on_delta = [self = shared_from_this(), choice, filter, is_wanted,
                    tells_tokens](const Delta& delta) {
      if (delta.kind != Delta::Kind::kTokens || tells_tokens) {
        Delta passed = delta;
        if ((filter == nullptr || filter->pass(passed)) && is_wanted) {
          self->hand_over(choice, std::move(passed));
        }
      }
      return true;
    };
  }
  out.on_token = [metrics = loaded_.metrics.get()](std::int32_t count, double gap_ms) {
    metrics->on_token(count, gap_ms);
  };
  out.on_end = [self = shared_from_this(), choice, filter](Result<Response> result) {
    self->loaded_.metrics->on_end(result);
    if (filter != nullptr && result) {
      filter->pass(*result);
    }
    // Posted work must be copyable.
    auto shared = std::make_shared<Result<Response>>(std::move(result));
    self->exchange_->post([self, choice, shared] { self->on_end(choice, std::move(*shared)); });
  };
  return out;
}

// In the engine's thread. What comes before the executor looks goes out as one piece: a client or
// a server that is behind gets fewer, larger writes.
void RunningJob::hand_over(std::size_t choice, Delta delta) {
  {
    const std::lock_guard lock(mutex_);
    arrived_.push_back({choice, std::move(delta)});
    if (std::exchange(is_awaited_, true)) {
      return;
    }
  }
  exchange_->post([self = shared_from_this()] { self->take_arrived(); });
}

void RunningJob::take_arrived() {
  std::vector<Arrived> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(arrived_);
    is_awaited_ = false;
  }
  if (is_over_) {
    return;
  }
  std::string events;
  for (const Arrived& one : taken) {
    job_.form->delta(one.choice, one.delta, events);
  }
  if (is_begun_) {
    send(events);
  }
}

void RunningJob::on_end(std::size_t choice, Result<Response> result) {
  if (is_over_) {
    return;
  }
  if (!result) {
    fail(from_status(result.error()));
    return;
  }
  if (result->finish_reason == FinishReason::kCancelled && !is_cancelled_) {
    fail({503, "the server is shutting down", "unavailable_error", "", "shutting_down"});
    return;
  }
  responses_[choice] = std::move(*result);
  if (is_begun_) {
    std::string events;
    job_.form->end(choice, *responses_[choice], events);
    send(events);
  }
  if (++num_ended_ == responses_.size()) {
    complete();
  }
}

void RunningJob::complete() {
  is_over_ = true;
  std::vector<Response> responses;
  responses.reserve(responses_.size());
  for (auto& response : responses_) {
    responses.push_back(*response);
  }
  if (is_begun_) {
    std::string events;
    job_.form->finish(responses, events);
    send(events);
    exchange_->end_stream();
  } else {
    exchange_->reply({.body = dump(job_.form->whole(responses))});
  }
  log(200);
}

void RunningJob::fail(const ApiError& error) {
  if (std::exchange(is_over_, true)) {
    return;
  }
  cancel_all();
  if (is_begun_) {
    std::string events;
    job_.form->fail(error, events);
    send(events);
    exchange_->end_stream();
  } else {
    exchange_->reply(job_.form->refusal(error));
  }
  log(error.status);
}

void RunningJob::cancel_all() {
  for (const RequestId id : ids_) {
    loaded_.host->cancel(id);
  }
}

void RunningJob::log(int status) const {
  if (!context_.options.logs_requests) {
    return;
  }
  const ReceiptSum sum = receipt_sum(responses_);
  context_.log.write(status < 500 ? LogLevel::kInfo : LogLevel::kWarning, "request",
                     {{"id", exchange_->request_id},
                      {"path", path_},
                      {"status", std::int64_t{status}},
                      {"stream", std::int64_t{job_.is_stream}},
                      {"choices", static_cast<std::int64_t>(responses_.size())},
                      {"prompt_tokens", std::int64_t{sum.usage.prompt_tokens}},
                      {"cached_tokens", std::int64_t{sum.usage.cached_tokens}},
                      {"completion_tokens", std::int64_t{sum.usage.completion_tokens}},
                      {"queue_ms", sum.timings.queue_ms},
                      {"prefill_ms", sum.timings.prefill_ms},
                      {"decode_ms", sum.timings.decode_ms},
                      {"finish", sum.finish},
                      {"seed", static_cast<std::int64_t>(sum.seed)},
                      {"kernel_path", sum.kernel_path}});
}

}  // namespace

void run_job(const Call& call, GenerationJob job) {
  const auto made = std::move(job.when_made);
  const auto running = std::make_shared<RunningJob>(call, std::move(job));
  if (made) {
    made(running->canceller());
  }
  running->start();
}

void append_event(const Json& data, std::string& out) {
  out.append("data: ").append(dump(data)).append("\n\n");
}

void append_named_event(std::string_view name, const Json& data, std::string& out) {
  out.append("event: ").append(name).append("\n");
  append_event(data, out);
}

}  // namespace nibble::server
