#include "tensor/device.h"

#include <gmock/gmock.h>

#include "kernel/gpu.h"

namespace nibble {
namespace {

using ::testing::HasSubstr;
using DeviceTest = kernels::GpuTest;

TEST_F(DeviceTest, SaysWhatItIs) {
  const DeviceFacts& facts = kernels::gpu().facts();
  EXPECT_FALSE(facts.name.empty());
  EXPECT_GE(facts.sm, 90);
  EXPECT_GT(facts.num_sms, 0);
  EXPECT_GE(facts.shared_bytes, 96 * 1024);
}

TEST_F(DeviceTest, RefusesMoreMemoryThanThereIsWithTheNumbers) {
  const std::int64_t too_much = 2 * kernels::gpu().facts().memory_bytes;
  const auto memory = kernels::gpu().allocate(too_much);
  ASSERT_FALSE(memory.has_value());
  EXPECT_EQ(memory.error().code(), Code::kExhausted);
  EXPECT_THAT(memory.error().message(), HasSubstr(std::to_string(too_much)));
  kernels::wait_for_gpu();  // the device goes on
}

TEST_F(DeviceTest, GivesMemoryBack) {
  const std::int64_t bytes = std::int64_t{1} << 30U;
  const std::int64_t before = *kernels::gpu().free_bytes();
  {
    const auto memory = kernels::gpu().allocate(bytes);
    ASSERT_TRUE(memory.has_value());
    EXPECT_LE(*kernels::gpu().free_bytes(), before - bytes);
  }
  EXPECT_EQ(*kernels::gpu().free_bytes(), before);
}

TEST_F(DeviceTest, RefusesAGpuThatIsNotThere) {
  EXPECT_EQ(open_cuda(99).error().code(), Code::kUnsupported);
}

TEST_F(DeviceTest, ReplaysACapturedGraph) {
  Device& device = kernels::gpu();
  const Stream stream = kernels::on_gpu().stream;
  kernels::OnGpu from(std::vector<int>{1, 2, 3});
  kernels::OnGpu to(12);
  ASSERT_TRUE(device.begin_capture(stream).ok());
  ASSERT_TRUE(device.copy(to.data(), from.data(), 12, stream).ok());
  auto graph = device.end_capture(stream);
  ASSERT_TRUE(graph.has_value()) << graph.error().message();
  EXPECT_NE(to.values<int>()[0], 1);  // captured, not run
  ASSERT_TRUE(device.launch(*graph, stream).ok());
  EXPECT_EQ(to.values<int>(), (std::vector<int>{1, 2, 3}));
}

TEST_F(DeviceTest, MeasuresTimeBetweenEvents) {
  Device& device = kernels::gpu();
  const Stream stream = kernels::on_gpu().stream;
  auto begin = device.make_event();
  auto end = device.make_event();
  ASSERT_TRUE(begin.has_value() && end.has_value());
  const kernels::OnGpu memory(std::int64_t{1} << 28U);
  ASSERT_TRUE(device.record(*begin, stream).ok());
  ASSERT_TRUE(device.fill(memory.data(), 0, memory.bytes(), stream).ok());
  ASSERT_TRUE(device.record(*end, stream).ok());
  ASSERT_TRUE(device.wait(*end).ok());
  EXPECT_GT(*device.elapsed_us(*begin, *end), 0.0);
  ASSERT_TRUE(device.fill(memory.data(), 0xFF, memory.bytes(), stream).ok());
}

}  // namespace
}  // namespace nibble
