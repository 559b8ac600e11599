#include <bit>
#include <vector>

#include "formats/bf16.h"
#include "kernel/gpu.h"
#include "kernels/probe/device_probe.h"
#include "support/counter_rng.h"

namespace nibble::kernels {
namespace {

using testing_support::CounterRng;
using ProbeOnGpu = GpuTest;

// Runs what `select` finds and gives the result's bits.
std::uint32_t run(DeviceProbeArgs args, double& work) {
  const OnGpu result(std::vector<std::uint32_t>{0});
  args.result = result.data<std::uint32_t>();
  args.work = &work;
  const Instance<DeviceProbeArgs>* row = select(device_probe_instances(), args, on_gpu());
  EXPECT_NE(row, nullptr);
  if (row == nullptr) {
    return 0;
  }
  EXPECT_TRUE(row->run(args, on_gpu()).ok());
  return result.values<std::uint32_t>().at(0);
}

TEST_F(ProbeOnGpu, ReadsEveryWord) {
  const CounterRng random(4);
  for (const std::int64_t count : {4, 4096, 1'000'004, 40'000'000}) {
    std::vector<std::uint32_t> words(static_cast<std::size_t>(count));
    std::uint32_t all = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
      words[i] = random.word(i % 5000) + static_cast<std::uint32_t>(i);
      all ^= words[i];
    }
    const OnGpu data(words);
    double work = 0.0;
    EXPECT_EQ(run({.limit = DeviceLimit::kRead, .data = data.data(), .bytes = 4 * count}, work),
              all);
    EXPECT_EQ(work, 4.0 * static_cast<double>(count));
  }
}

TEST_F(ProbeOnGpu, MultipliesAsOftenAsItCounts) {
  const std::vector<formats::Bf16> ones(32768, formats::f32_to_bf16(1.0F));
  const auto memory = gpu().allocate(65536);  // aligned as a device's memory is
  ASSERT_TRUE(memory.has_value());
  ASSERT_TRUE(gpu().copy(memory->data(), ones.data(), 65536, on_gpu().stream).ok());
  for (const std::int32_t rounds : {1, 3, 100}) {
    double work = 0.0;
    const std::uint32_t bits = run({.limit = DeviceLimit::kBf16Products,
                                    .data = memory->data(),
                                    .bytes = 65536,
                                    .rounds = rounds},
                                   work);
    EXPECT_EQ(std::bit_cast<float>(bits), 64.0F * 16.0F * static_cast<float>(rounds));
    EXPECT_EQ(work, 2.0 * 64 * 256 * 16 * 64 * 2 * rounds * gpu().facts().num_sms);
  }
}

TEST_F(ProbeOnGpu, MeasuresSomething) {
  const auto read = device_read_bandwidth(gpu(), std::int64_t{1} << 30U);
  const auto products = device_bf16_peak(gpu());
  ASSERT_TRUE(read.has_value()) << read.error().message();
  ASSERT_TRUE(products.has_value()) << products.error().message();
  EXPECT_GT(*read, 0.0);
  EXPECT_GT(*products, 0.0);
  RecordProperty("read_gb_s", static_cast<int>(*read / 1e9));
  RecordProperty("bf16_tflop_s", static_cast<int>(*products / 1e12));
}

}  // namespace
}  // namespace nibble::kernels
