#include "nibble/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/check.h"
#include "base/error.h"

namespace nibble {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) {
    return error(Code::kInvalidArgument, "want an even number, got {}", value);
  }
  return value / 2;
}

Result<int> quarter(int value) {
  NIBBLE_ASSIGN_OR_RETURN(const int once, half(value));
  NIBBLE_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

TEST(Result, HoldsValueOrReason) {
  ASSERT_TRUE(quarter(8).has_value());
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().message(), "want an even number, got 3");
  EXPECT_EQ(quarter(6).error().code(), Code::kInvalidArgument);
}

TEST(Result, MovesOut) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 7);
}

TEST(Result, ReadingAFailureAborts) { EXPECT_DEATH((void)half(1).value(), ""); }

TEST(Check, PrintsConditionAndValues) {
  EXPECT_DEATH(NIBBLE_CHECK(1 + 1 == 3, 1, 1), "1 \\+ 1 == 3 with 1 1");
}

TEST(Status, EveryCodeHasAName) {
  for (int code = 0; code <= static_cast<int>(Code::kInternal); ++code) {
    EXPECT_NE(name(static_cast<Code>(code)), "unknown");
  }
}

}  // namespace
}  // namespace nibble
