// Progress of a batch on standard error: one moving line on a terminal, a line at each tenth
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "server/batch_runner.h"

namespace nibble::cli {

class BatchProgressLine {
 public:
  BatchProgressLine(std::FILE* err, bool is_terminal) : err_(err), is_terminal_(is_terminal) {}

  void show(const server::BatchProgress& progress);
  // The last word: removes the moving line and says what there is.
  void finish(const server::BatchProgress& progress);

 private:
  using Clock = std::chrono::steady_clock;

  std::string text(const server::BatchProgress& progress) const;

  std::FILE* err_;
  bool is_terminal_ = false;
  bool has_line_ = false;
  std::int64_t tenths_ = 0;  // last line printed
  Clock::time_point begin_ = Clock::now();
  Clock::time_point last_{};
};

}  // namespace nibble::cli
