#include "model/step_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "support/host_device.h"

namespace nibble::model {
namespace {

using ::testing::ElementsAre;
using testing_support::HostDevice;

constexpr StepRing::Limits kLimits{
    .input_bytes = 100, .sample_bytes = 50, .num_notes = 2, .max_logit_rows = 3, .vocab = 5};

TEST(StepRing, KeepsStepsApartAndGivesThemBackInTheirOrder) {
  HostDevice device(1 << 20);
  {
    StepRing ring;
    ASSERT_TRUE(ring.create(device, kLimits).ok());
    std::vector<std::byte*> inputs;
    for (std::int32_t step = 0; step < 7; ++step) {
      const std::vector<std::int32_t> tokens(static_cast<std::size_t>(step % 4), 10 + step);
      const std::vector<std::int32_t> bad = {step, -step};
      inputs.push_back(ring.inputs());
      ASSERT_TRUE(ring.send_back(tokens.data(), step % 4, bad.data(), nullptr).ok());
      EXPECT_NE(ring.inputs(), inputs.back());  // of the step that still runs
      if (step == 0) {
        EXPECT_EQ(ring.num_started(), 1);
        continue;
      }
      EXPECT_EQ(ring.num_started(), kMostStartedSteps);
      const auto done = ring.finish();
      ASSERT_TRUE(done.has_value());
      EXPECT_THAT(done->tokens, ::testing::SizeIs((step - 1) % 4));
      EXPECT_THAT(done->tokens, ::testing::Each(10 + step - 1));
      EXPECT_THAT(std::vector(done->bad_rows, done->bad_rows + 2),
                  ElementsAre(step - 1, -(step - 1)));
      EXPECT_EQ(ring.inputs(), inputs[inputs.size() - 2]);  // free again
    }
    ASSERT_TRUE(ring.finish().has_value());
    EXPECT_EQ(ring.num_started(), 0);
    EXPECT_EQ(device.num_event_waits, 7);
  }
  EXPECT_EQ(device.num_live, 0);
}

TEST(StepRingDeathTest, AThirdStepWaitsForTheFirst) {
  HostDevice device(1 << 20);
  StepRing ring;
  ASSERT_TRUE(ring.create(device, kLimits).ok());
  const std::int32_t bad[] = {0, 0};
  ASSERT_TRUE(ring.send_back(nullptr, 0, bad, nullptr).ok());
  ASSERT_TRUE(ring.send_back(nullptr, 0, bad, nullptr).ok());
  EXPECT_DEATH((void)ring.send_back(nullptr, 0, bad, nullptr), "num_started");
}

}  // namespace
}  // namespace nibble::model
