#include "tensor/device.h"

#include <gmock/gmock.h>

#include "tensor/device_errors.h"

namespace nibble {
namespace {

using ::testing::HasSubstr;

TEST(Device, NumberNobodyHasIsRefusedWithAReason) {
  const auto device = open_cuda(1000);
  ASSERT_FALSE(device.has_value());
  EXPECT_EQ(device.error().code(), Code::kUnsupported);
  EXPECT_FALSE(device.error().message().empty());
}

TEST(Device, ErrorsHoldTheNumbers) {
  const DeviceFacts facts{.name = "Card", .index = 3, .sm = 89, .memory_bytes = 1000};
  const Status full = device_memory_exhausted(facts, 900, 800);
  EXPECT_EQ(full.code(), Code::kExhausted);
  EXPECT_EQ(full.message(), "Card (3): want 900 bytes, 800 of 1000 are free");
  EXPECT_THAT(device_without_code(facts).message(), HasSubstr("compute capability 8.9"));
  EXPECT_EQ(device_not_there(4, 2).message(), "GPU 4 wanted, 2 found");
  EXPECT_EQ(device_call_failed("copy", "bad", 7).message(), "CUDA, copy: bad (7)");
}

}  // namespace
}  // namespace nibble
