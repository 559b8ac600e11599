#include "cli/batch_progress.h"

#include <fmt/format.h>

namespace nibble::cli {
namespace {

constexpr std::chrono::milliseconds kLinePeriod{100};

}  // namespace

std::string BatchProgressLine::text(const server::BatchProgress& progress) const {
  const std::chrono::duration<double> time = Clock::now() - begin_;
  std::string out = fmt::format("{} of {} lines, {} failed, {:.1f} s", progress.done,
                                progress.total, progress.failed, time.count());
  if (progress.kept > 0) {
    out += fmt::format("; {} were there already", progress.kept);
  }
  return out;
}

void BatchProgressLine::show(const server::BatchProgress& progress) {
  const auto now = Clock::now();
  if (is_terminal_) {
    if (has_line_ && now - last_ < kLinePeriod) {
      return;
    }
    last_ = now;
    has_line_ = true;
    fmt::print(err_, "\rnibble batch: {}\x1b[K", text(progress));
    std::fflush(err_);
    return;
  }
  const std::int64_t tenths = progress.total > 0 ? progress.done * 10 / progress.total : 0;
  if (tenths > tenths_ && tenths < 10) {  // all of it is the last word
    tenths_ = tenths;
    fmt::print(err_, "nibble batch: {}\n", text(progress));
    std::fflush(err_);
  }
}

void BatchProgressLine::finish(const server::BatchProgress& progress) {
  fmt::print(err_, "{}nibble batch: {}\n", has_line_ ? "\r\x1b[K" : "", text(progress));
  std::fflush(err_);
}

}  // namespace nibble::cli
