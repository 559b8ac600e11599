#include "cli/progress.h"

#include <fmt/format.h>

#include "cli/parse.h"

namespace nibble::cli {
namespace {

constexpr int kCells = 30;
constexpr std::chrono::milliseconds kBarPeriod{100};

}  // namespace

void Progress::show_bar(double part, std::int64_t done, std::int64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (has_bar_ && now - last_bar_ < kBarPeriod) {
    return;
  }
  last_bar_ = now;
  has_bar_ = true;
  const auto cells = static_cast<std::size_t>(part * kCells);
  out_.write(fmt::format("\r{} [{}{}] {:3.0f} %  {} of {}\x1b[K", what_, std::string(cells, '#'),
                         std::string(kCells - cells, '.'), part * 100, bytes_text(done),
                         bytes_text(total)));
  out_.flush();
}

void Progress::show(std::int64_t done, std::int64_t total) {
  const double part = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1.0;
  if (out_.is_terminal()) {
    show_bar(part, done, total);
    return;
  }
  const int tenths = static_cast<int>(part * 10);
  if (tenths > tenths_) {
    tenths_ = tenths;
    out_.write(fmt::format("{} {} %: {} of {}\n", what_, tenths * 10, bytes_text(done),
                           bytes_text(total)));
    out_.flush();
  }
}

void Progress::finish() {
  if (has_bar_) {
    out_.write("\r\x1b[K");
    has_bar_ = false;
  }
}

}  // namespace nibble::cli
