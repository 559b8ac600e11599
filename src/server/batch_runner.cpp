#include "server/batch_runner.h"

#include <chrono>
#include <utility>

#include "base/check.h"
#include "server/router.h"

namespace nibble::server {
namespace {

constexpr std::chrono::seconds kProgressTime{1};

}  // namespace

// The way back of one line: its reply becomes a line of the output.
class BatchRunner::LineExchange final : public Exchange,
                                        public std::enable_shared_from_this<LineExchange> {
 public:
  LineExchange(BatchRunner& runner, BatchLine line) : runner_(runner), line_(std::move(line)) {}

  void post(std::function<void()> work) override {
    runner_.post([self = shared_from_this(), work = std::move(work)] { work(); });
  }
  void reply(HttpReply reply) override {
    if (!end()) {
      return;
    }
    const ServiceStats stats = runner_.context_.loaded.load()->host->stats();
    if (stats.state == ServiceState::kFailed) {  // which is no answer to this line
      runner_.fail(stats.failure);
    } else {
      runner_.record(answered_line(line_, id(), reply), reply.status >= 400);
    }
  }
  // Lines that ask for a stream were refused.
  void begin_stream(HttpReply /*head*/) override { NIBBLE_CHECK(false); }
  void send(std::string_view /*chunk*/) override { NIBBLE_CHECK(false); }
  void end_stream() override { NIBBLE_CHECK(false); }
  void when_gone(std::function<void()> action) override {
    if (!is_over_) {
      gone_ = std::move(action);
    }
  }
  void when_late(std::chrono::milliseconds /*after*/, std::function<void()> /*action*/) override {}

  // Nobody wants the answer any more.
  void leave() {
    const auto gone = std::exchange(gone_, nullptr);
    if (end() && gone) {
      gone();
    }
  }

 private:
  // False: it was over.
  bool end() {
    if (std::exchange(is_over_, true)) {
      return false;
    }
    gone_ = nullptr;
    runner_.in_flight_.erase(shared_from_this());
    return true;
  }
  std::string id() const {
    for (const Header& header : added_headers()) {
      if (header.name == "x-request-id") {
        return header.value;
      }
    }
    return request_id;
  }

  BatchRunner& runner_;
  BatchLine line_;
  std::function<void()> gone_;
  bool is_over_ = false;
};

BatchRunner::BatchRunner(ApiContext& context, BatchOutput& output, std::size_t most_in_flight)
    : context_(context),
      api_(make_api(context)),
      output_(output),
      most_in_flight_(most_in_flight) {}

BatchRunner::~BatchRunner() = default;

Status BatchRunner::run(BatchInput& input, const BatchProgress& progress, OnProgress on_progress) {
  progress_ = progress;
  on_progress_ = std::move(on_progress);
  while (failure_.ok()) {
    std::optional<BatchLine> line = input.next();
    if (!line.has_value()) {
      break;
    }
    take(*std::move(line));
    while (in_flight_.size() >= most_in_flight_) {
      work();
    }
  }
  while (!in_flight_.empty()) {
    work();
  }
  return failure_;
}

void BatchRunner::take(BatchLine line) {
  if (output_.has(line)) {
    return;
  }
  if (line.fault.has_value()) {
    record(refused_line(line), true);
    return;
  }
  const HttpRequest request = std::move(line.request);
  const auto exchange = std::make_shared<LineExchange>(*this, std::move(line));
  in_flight_.insert(exchange);
  api_(request, exchange);
}

void BatchRunner::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  posted_.notify_one();
}

void BatchRunner::work() {
  std::deque<std::function<void()>> posted;
  {
    std::unique_lock lock(mutex_);
    posted_.wait_for(lock, kProgressTime, [this] { return !work_.empty(); });
    std::swap(posted, work_);
  }
  for (const auto& one : posted) {
    one();
  }
  if (posted.empty()) {
    on_progress_(progress_);
  }
}

void BatchRunner::record(const std::string& line, bool is_failure) {
  if (!failure_.ok()) {
    return;
  }
  const Status written = output_.append(line);
  if (!written.ok()) {
    fail(written);
    return;
  }
  ++progress_.done;
  progress_.failed += is_failure ? 1 : 0;
  on_progress_(progress_);
}

void BatchRunner::fail(const Status& failure) {
  failure_ = failure_.ok() ? failure : failure_;
  const auto abandoned = in_flight_;  // leaving takes them out
  for (const auto& exchange : abandoned) {
    exchange->leave();
  }
}

}  // namespace nibble::server
