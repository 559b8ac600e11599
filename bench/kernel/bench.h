// Times every row of a kernel table on named shapes: microseconds, GB/s of compulsory traffic and
// GFLOP/s, medians of many calls.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/common/instance.h"
#include "tensor/dtype.h"

namespace nibble::bench {

struct Options {
  std::regex filter{".*"};  // over "shape/instance"
  double seconds = 0.5;     // for each line
  bool with_references = false;
};

struct Work {
  std::int64_t bytes = 0;
  std::int64_t flops = 0;
};

// Reproducible values about 1 in size; never zeros, which are cheaper to multiply.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  std::uint64_t bits() {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    return state_;
  }
  float value() { return static_cast<float>(bits() >> 40U) * 0x1p-23F - 1.0F; }

 private:
  std::uint64_t state_;
};

// Activations of either type.
std::vector<std::byte> random_values(std::int64_t count, DType dtype, std::uint64_t seed);

// Calls body() for `seconds`, at least 5 times after one to warm up; the median in seconds.
template <typename Body>
double median_time(double seconds, Body&& body) {
  body();
  std::vector<double> times;
  double total = 0.0;
  while (total < seconds || times.size() < 5) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    const auto end = std::chrono::steady_clock::now();
    times.push_back(std::chrono::duration<double>(end - begin).count());
    total += times.back();
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

inline void print_line(const std::string& shape, const char* instance, double seconds, Work work) {
  fmt::print("{:<34} {:<22} {:>11.1f} us {:>8.2f} GB/s {:>9.1f} GFLOP/s\n", shape, instance,
             seconds * 1e6, static_cast<double>(work.bytes) / seconds * 1e-9,
             static_cast<double>(work.flops) / seconds * 1e-9);
  std::fflush(stdout);
}

// `vary(args, call)` may change the arguments before each call, so that a cache is not measured.
template <typename Args, typename Vary>
void bench_rows(std::span<const kernels::Instance<Args>> table, const std::string& shape,
                const Options& options, ThreadPool& pool, Args args, Work work, Vary&& vary) {
  for (const kernels::Instance<Args>& row : table) {
    const bool is_wanted =
        (options.with_references || row.info.backend != kernels::Backend::kScalar) &&
        std::regex_search(shape + "/" + row.info.name, options.filter);
    if (!is_wanted || !kernels::runs_here(row.info) || !row.accepts(args)) {
      continue;
    }
    int call = 0;
    const double seconds = median_time(options.seconds, [&] {
      vary(args, call++);
      if (const Status status = row.run(args, {&pool, nullptr}); !status.ok()) {
        fmt::print(stderr, "{}/{}: {}\n", shape, row.info.name, status.message());
        std::exit(1);
      }
    });
    print_line(shape, row.info.name, seconds, work);
  }
}

void bench_attention(const Options& options, ThreadPool& pool);
void bench_gemm(const Options& options, ThreadPool& pool);
void bench_moe(const Options& options, ThreadPool& pool);

}  // namespace nibble::bench
