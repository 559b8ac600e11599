#include "server/status_line.h"

#include <fmt/format.h>

namespace nibble::server {

std::optional<std::string> StatusLine::next(const ServiceStats& stats,
                                            std::chrono::duration<double> elapsed) {
  const auto rate = [&elapsed](std::int64_t now, std::int64_t before) {
    return static_cast<double>(now - before) / elapsed.count();
  };
  const bool is_busy = stats.running + stats.waiting > 0 ||
                       stats.generation_tokens != last_.generation_tokens ||
                       stats.prompt_tokens != last_.prompt_tokens;
  const auto percent = [](double part, double whole) {
    return whole == 0.0 ? 0.0 : 100.0 * part / whole;
  };
  std::string line = fmt::format(
      "Engine 000: Avg prompt throughput: {:.1f} tokens/s, Avg generation throughput: {:.1f} "
      "tokens/s, Running: {} reqs, Waiting: {} reqs, GPU KV cache usage: {:.1f}%, Prefix cache hit "
      "rate: {:.1f}%",
      rate(stats.prompt_tokens, last_.prompt_tokens),
      rate(stats.generation_tokens, last_.generation_tokens), stats.running, stats.waiting,
      percent(stats.full_pages.used, stats.full_pages.total),
      percent(static_cast<double>(stats.prefix_hit_tokens),
              static_cast<double>(stats.prefix_queried_tokens)));
  last_ = stats;
  const bool is_shown = is_busy || was_busy_;  // once more, so that the end of work is seen
  was_busy_ = is_busy;
  return is_shown ? std::optional(std::move(line)) : std::nullopt;
}

}  // namespace nibble::server
