#include "kernels/probe/probe.h"

#include <gtest/gtest.h>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "kernels/probe/dot_loops.h"

namespace nibble::kernels {
namespace {

constexpr CpuIsa kAll[] = {CpuIsa::kAny,        CpuIsa::kAvx2,       CpuIsa::kAvx512,
                           CpuIsa::kAvx512Vnni, CpuIsa::kAvx512Bf16, CpuIsa::kAmxBf16,
                           CpuIsa::kAmxInt8};

// No machine reads a byte in less than a picosecond or in more than a microsecond.
TEST(Probe, ReadBandwidthIsPlausible) {
  for (const int threads : {1, 2}) {
    ThreadPool pool(threads);
    const double rate = read_bandwidth(pool, 8 << 20);
    EXPECT_GT(rate, 1e6);
    EXPECT_LT(rate, 1e12);
  }
}

TEST(Probe, ABufferOfOddSizeIsReadToItsEnd) {
  ThreadPool pool(2);
  EXPECT_GT(read_bandwidth(pool, 64), 0.0);
  EXPECT_GT(read_bandwidth(pool, 4096 * 3 + 64 * 5 + 7), 0.0);
}

TEST(Probe, DotPeakIsMeasuredExactlyWhereTheInstructionIs) {
  ThreadPool pool(1);
  for (const CpuIsa isa : kAll) {
    const double rate = dot_peak(pool, isa);
    const bool is_expected = isa != CpuIsa::kAny && has_isa(isa, cpu_features());
    EXPECT_EQ(rate > 1e6, is_expected) << isa_name(isa) << ": " << rate;
    EXPECT_LT(rate, 1e14) << isa_name(isa);
  }
}

// An instruction twice as wide does at least as much in a second, within what a busy machine takes.
TEST(Probe, Bf16IsNotSlowerThanF32) {
  const CpuFeatures& cpu = cpu_features();
  if (best_bf16_isa(cpu) == CpuIsa::kAny) {
    GTEST_SKIP() << "no bf16 dot product on this processor";
  }
  ThreadPool pool(1);
  EXPECT_GT(dot_peak(pool, best_bf16_isa(cpu)), 0.5 * dot_peak(pool, best_f32_isa(cpu)));
}

TEST(Probe, BestInstructionSetFollowsTheFeatures) {
  CpuFeatures cpu;
  EXPECT_EQ(best_f32_isa(cpu), CpuIsa::kAny);
  EXPECT_EQ(best_bf16_isa(cpu), CpuIsa::kAny);
  cpu.avx2 = true;
  EXPECT_EQ(best_f32_isa(cpu), CpuIsa::kAvx2);
  cpu.avx512 = cpu.avx512_bf16 = true;
  EXPECT_EQ(best_f32_isa(cpu), CpuIsa::kAvx512);
  EXPECT_EQ(best_bf16_isa(cpu), CpuIsa::kAvx512Bf16);
  cpu.amx_bf16 = true;
  EXPECT_EQ(best_bf16_isa(cpu), CpuIsa::kAmxBf16);
  EXPECT_EQ(best_int8_isa(cpu), CpuIsa::kAny);
  cpu.avx512_vnni = true;
  EXPECT_EQ(best_int8_isa(cpu), CpuIsa::kAvx512Vnni);
  cpu.amx_int8 = true;
  EXPECT_EQ(best_int8_isa(cpu), CpuIsa::kAmxInt8);
}

}  // namespace
}  // namespace nibble::kernels
