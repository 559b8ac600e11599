// Nothing is read that was not written: the same bits whatever memory held before.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/engine_under_test.h"

namespace nibble::engine {
namespace {

using testing_support::all_logits;
using testing_support::EngineSetup;
using testing_support::make_engine;

// From here on glibc fills what it gives out with `byte`, and what it takes back with ~byte. Of
// the number only the low eight bits are written; the ninth keeps 0xFF, which is NaN in every
// float format, from meaning "off".
void fill_memory_with(int byte) { ASSERT_EQ(::mallopt(M_PERTURB, 0x100 | (byte ^ 0xFF)), 1); }
void leave_memory_alone() { ASSERT_EQ(::mallopt(M_PERTURB, 0), 1); }

bool is_filled_with(int byte) {
  const std::vector<unsigned char> want(5000, static_cast<unsigned char>(byte));
  void* volatile fresh = std::malloc(want.size());
  const bool is_equal = std::memcmp(fresh, want.data(), want.size()) == 0;
  std::free(fresh);
  return is_equal;
}

TEST(Memory, WhatItHeldBeforeChangesNoBit) {
  std::vector<std::int32_t> ids(150);
  for (std::int32_t i = 0; i < 150; ++i) {
    ids[static_cast<std::size_t>(i)] = 5 + i * 7 % 500;
  }
  for (const char* folder : {"/models/demo", "/tests/golden/odd"}) {
    for (const DType activation : {DType::kF32, DType::kBF16}) {
      const EngineSetup setup{.activation = activation, .max_batch_tokens = 100};
      const auto run = [&] {
        const auto engine = make_engine(std::string(NIBBLE_SOURCE_DIR) + folder, setup);
        return engine == nullptr ? std::vector<float>() : all_logits(*engine, ids);
      };
      const std::vector<float> want = run();
      ASSERT_FALSE(want.empty());
      for (const int byte : {0x00, 0x7F, 0xFE, 0xFF}) {
        fill_memory_with(byte);
        EXPECT_TRUE(is_filled_with(byte)) << byte;
        const std::vector<float> found = run();
        leave_memory_alone();
        EXPECT_TRUE(found == want) << folder << ", memory full of " << byte;
      }
    }
  }
}

}  // namespace
}  // namespace nibble::engine
