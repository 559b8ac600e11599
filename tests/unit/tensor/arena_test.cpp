#include "tensor/arena.h"

#include <gtest/gtest.h>

#include <array>

namespace nibble {
namespace {

std::int64_t take_parts(Arena& arena, std::array<std::byte*, 3>& parts) {
  parts = {arena.take<std::byte>(1), reinterpret_cast<std::byte*>(arena.take<double>(33)),
           arena.take<std::byte>(0)};
  return arena.bytes();
}

TEST(Arena, NeedsWhatItMeasuredAndKeepsPartsApart) {
  std::array<std::byte*, 3> parts{};
  Arena measure;
  const std::int64_t bytes = take_parts(measure, parts);
  EXPECT_EQ(bytes, 256 + 512);
  EXPECT_EQ(parts[1], nullptr);

  alignas(Arena::kAlignment) std::array<std::byte, 768> memory{};
  Arena arena(memory.data());
  EXPECT_EQ(take_parts(arena, parts), bytes);
  EXPECT_EQ(parts[0], memory.data());
  EXPECT_EQ(parts[1], memory.data() + 256);
  EXPECT_EQ(parts[2], memory.data() + 768);
}

}  // namespace
}  // namespace nibble
