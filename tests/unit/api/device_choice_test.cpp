#include "api/device_choice.h"

#include <gmock/gmock.h>

#include <vector>

namespace nibble {
namespace {

using ::testing::StartsWith;

KernelRow row(const char* family, int min_sm, bool is_verified, bool is_needed = true) {
  return {family,
          {.name = family,
           .backend = kernels::Backend::kCuda,
           .min_sm = min_sm,
           .verified = is_verified},
          is_needed};
}

TEST(DeviceChoice, NamesTheFirstNeededFamilyWithoutAVerifiedKernel) {
  const DeviceFacts hopper{.name = "H", .sm = 90};
  std::vector<KernelRow> rows = {row("a", 90, true), row("b", 90, true),
                                 row("c", 90, false, false)};
  EXPECT_EQ(missing_family(rows, hopper), "");
  rows[1].info.verified = false;
  EXPECT_EQ(missing_family(rows, hopper), "b");
  rows[1].info.verified = true;
  EXPECT_EQ(missing_family(rows, {.name = "A", .sm = 80}), "a");
  rows.push_back({"d", {.name = "d", .backend = kernels::Backend::kCpu}, true});
  EXPECT_EQ(missing_family(rows, hopper), "d");
}

TEST(DeviceChoice, SaysWhy) {
  EXPECT_EQ(choose_device(DeviceChoice::kCpu)->reason, "cpu: asked for");
  const Result<ChosenDevice> cuda = choose_device(DeviceChoice::kCuda);
  const Result<ChosenDevice> automatic = choose_device(DeviceChoice::kAuto);
  ASSERT_TRUE(automatic.has_value());
  if (cuda) {
    EXPECT_EQ(automatic->kernels, model::KernelChoice::kCuda);
  } else {
    EXPECT_EQ(cuda.error().code(), Code::kUnsupported);
    EXPECT_EQ(automatic->kernels, model::KernelChoice::kCpu);
    EXPECT_THAT(automatic->reason, StartsWith("cpu: "));
  }
}

TEST(DeviceChoice, OnlyTheProcessorKeepsAnswersApart) {
  EXPECT_TRUE(check_deterministic({.reason = "cpu: asked for"}).ok());
  EXPECT_TRUE(check_deterministic({.kernels = model::KernelChoice::kReference}).ok());
  const Status refused = check_deterministic(
      {.kernels = model::KernelChoice::kCuda, .free_bytes = 1, .reason = "cuda: NVIDIA H200"});
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_THAT(refused.message(), testing::HasSubstr("--device cpu"));
  EXPECT_THAT(refused.message(), testing::HasSubstr("cuda: NVIDIA H200"));
}

}  // namespace
}  // namespace nibble
