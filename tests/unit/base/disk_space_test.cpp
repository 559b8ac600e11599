#include "base/disk_space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace nibble {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DiskSpace, IsEnoughOrRefusedWithBothNumbers) {
  EXPECT_TRUE(check_disk_space("/tmp", 1).ok());
  const Status much = check_disk_space("/tmp", std::numeric_limits<std::int64_t>::max());
  ASSERT_FALSE(much.ok());
  EXPECT_EQ(much.code(), Code::kExhausted);
  EXPECT_THAT(
      much.message(),
      AllOf(HasSubstr("want 9223372036854775807 bytes of free disk, found "), HasSubstr("/tmp")));
}

TEST(DiskSpace, WantsAFolder) {
  const Status missing = check_disk_space("/tmp/nibble-is-not-there", 1);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("No such file"));
}

}  // namespace
}  // namespace nibble
