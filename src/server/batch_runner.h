// Sends the lines of a batch through the API, many at a time, and writes down what comes back.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "nibble/status.h"
#include "server/api_context.h"
#include "server/batch_input.h"
#include "server/batch_output.h"
#include "server/http.h"

namespace nibble::server {

struct BatchProgress {
  std::int64_t total = 0;   // lines of the input
  std::int64_t done = 0;    // of them in the output
  std::int64_t failed = 0;  // of those, refused or with a status from 400
  std::int64_t kept = 0;    // of those done, by an earlier run
};

// One thread calls everything; the model's only posts work to it. Outlives the model.
class BatchRunner {
 public:
  using OnProgress = std::function<void(const BatchProgress&)>;

  // `context` is loaded. `most_in_flight`: lines that are with the API at a time.
  BatchRunner(ApiContext& context, BatchOutput& output, std::size_t most_in_flight);
  ~BatchRunner();
  BatchRunner(const BatchRunner&) = delete;
  BatchRunner& operator=(const BatchRunner&) = delete;

  // Answers every line of the input that the output does not have. `on_progress` is called after
  // each line and about once a second. Fails when the output cannot be written, or with the model;
  // lines without an answer by then are not in the output.
  Status run(BatchInput& input, const BatchProgress& progress, OnProgress on_progress);

 private:
  class LineExchange;

  void take(BatchLine line);
  void post(std::function<void()> work);
  void work();  // waits for some
  void record(const std::string& line, bool is_failure);
  void fail(const Status& failure);

  ApiContext& context_;
  Handler api_;
  BatchOutput& output_;
  std::size_t most_in_flight_ = 0;
  BatchProgress progress_;
  OnProgress on_progress_;
  std::set<std::shared_ptr<LineExchange>> in_flight_;
  Status failure_;

  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> work_;
};

}  // namespace nibble::server
