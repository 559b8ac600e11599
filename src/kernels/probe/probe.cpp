#include "kernels/probe/probe.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/check.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "kernels/probe/dot_loops.h"
#include "tensor/buffer.h"

namespace nibble::kernels {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <std::size_t kCount>
double median(std::array<double, kCount> values) {
  std::sort(values.begin(), values.end());
  return values[kCount / 2];
}

// 64 bytes as one value: a cache line.
using Line = std::uint64_t __attribute__((vector_size(64)));

// Reads every line and nothing else.
void read_lines(const Line* lines, Range range) {
  Line sums[4] = {};
  std::int64_t i = range.begin;
  for (; i + 4 <= range.end; i += 4) {
    for (int j = 0; j < 4; ++j) {
      sums[j] ^= lines[i + j];
    }
  }
  for (; i < range.end; ++i) {
    sums[0] ^= lines[i];
  }
  const Line all = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  __asm__ volatile("" : : "m"(all));
}

}  // namespace

double read_bandwidth(ThreadPool& pool, std::int64_t bytes) {
  constexpr std::int64_t kPageLines = 4096 / sizeof(Line);
  const std::int64_t num_lines = bytes / static_cast<std::int64_t>(sizeof(Line));
  NIBBLE_CHECK(num_lines > 0, bytes);
  Buffer<Line> buffer(num_lines);
  // Each worker writes what it will read, so that pages lie near it.
  pool.run_split(num_lines, kPageLines, [&](int /*worker*/, Range range) {
    std::fill(buffer.data() + range.begin, buffer.data() + range.end, Line{1, 2, 3, 4, 5, 6, 7, 8});
  });
  const auto pass = [&] {
    const Clock::time_point start = Clock::now();
    pool.run_split(num_lines, kPageLines,
                   [&](int /*worker*/, Range range) { read_lines(buffer.data(), range); });
    return seconds_since(start);
  };
  pass();
  std::array<double, 5> seconds{};
  std::generate(seconds.begin(), seconds.end(), pass);
  return static_cast<double>(num_lines) * sizeof(Line) / median(seconds);
}

double dot_peak(ThreadPool& pool, CpuIsa isa) {
  constexpr double kRunSeconds = 0.01;
  const DotLoop loop = dot_loop(isa);
  if (loop.run == nullptr || !has_isa(isa, cpu_features())) {
    return 0.0;
  }
  const auto time = [&](std::int64_t rounds) {
    const Clock::time_point start = Clock::now();
    pool.run([&](int /*worker*/) { loop.run(rounds); });
    return seconds_since(start);
  };
  // Grows until a run is long enough; that also warms the units up.
  std::int64_t rounds = 1000;
  while (time(rounds) < kRunSeconds) {
    rounds *= 2;
  }
  std::array<double, 3> seconds{};
  std::generate(seconds.begin(), seconds.end(), [&] { return time(rounds); });
  return loop.operations_per_round * static_cast<double>(rounds) * pool.size() / median(seconds);
}

CpuIsa best_f32_isa(const CpuFeatures& cpu) {
  return cpu.avx512 ? CpuIsa::kAvx512 : cpu.avx2 ? CpuIsa::kAvx2 : CpuIsa::kAny;
}

CpuIsa best_bf16_isa(const CpuFeatures& cpu) {
  return cpu.amx_bf16 ? CpuIsa::kAmxBf16 : cpu.avx512_bf16 ? CpuIsa::kAvx512Bf16 : CpuIsa::kAny;
}

CpuIsa best_int8_isa(const CpuFeatures& cpu) {
  return cpu.amx_int8 ? CpuIsa::kAmxInt8 : cpu.avx512_vnni ? CpuIsa::kAvx512Vnni : CpuIsa::kAny;
}

}  // namespace nibble::kernels
