#include "tensor/kernel_trace.h"

#include <gmock/gmock.h>

namespace nibble {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(KernelTrace, KeepsABitForEachNameAndForgetsWhatRan) {
  KernelTrace trace;
  EXPECT_EQ(trace.seen(), 0U);
  trace.note("a");
  trace.note("b");
  trace.note("a");
  const std::uint64_t both = trace.seen();
  EXPECT_THAT(trace.names(both), ElementsAre("a", "b"));
  trace.begin();
  EXPECT_THAT(trace.names(trace.seen()), IsEmpty());
  trace.note("c");
  const std::uint64_t third = trace.seen();
  EXPECT_EQ(both & third, 0U);
  trace.add(both);
  EXPECT_EQ(trace.seen(), both | third);
  EXPECT_THAT(trace.names(both | third), ElementsAre("a", "b", "c"));
}

}  // namespace
}  // namespace nibble
