// What can be said of the decode step without a GPU: how work is shared out, where blocks leave
// what others read, and what the kernel refuses.
#include "kernels/decode/decode_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace nibble::kernels {
namespace {

using ::testing::HasSubstr;

constexpr DecodeSizes kGptOss20b{.num_layers = 24,
                                 .hidden = 2880,
                                 .intermediate = 2880,
                                 .num_experts = 32,
                                 .top_k = 4,
                                 .num_heads = 64,
                                 .num_kv_heads = 8,
                                 .page_size = 64,
                                 .vocab = 201088,
                                 .num_blocks = 132};

DeviceFacts hopper(int num_sms = 132) { return {.name = "fake", .sm = 90, .num_sms = num_sms}; }

std::string refusal(const DecodeSizes& sizes, const DeviceFacts& facts = hopper()) {
  const Status status = decode_step_supports(sizes, {.device = &facts});
  EXPECT_TRUE(status.ok() || status.code() == Code::kUnsupported);
  return std::string(status.message());
}

TEST(DecodeShare, CoversEverythingOnceInPartsThatDifferByOne) {
  for (const std::int32_t count : {0, 1, 131, 132, 133, 720, 1440, 2880, 5120, 201088}) {
    std::int32_t next = 0;
    for (std::int32_t block = 0; block < 132; ++block) {
      const DecodeRange part = decode_share(count, block, 132);
      ASSERT_EQ(part.begin, next);
      ASSERT_GE(part.size(), count / 132);
      ASSERT_LE(part.size(), decode_largest_share(count, 132));
      next = part.end;
    }
    EXPECT_EQ(next, count);
  }
}

TEST(DecodeExchange, PartsFollowEachOtherWithoutOverlap) {
  const DecodeExchange at(kGptOss20b);
  const std::vector<std::pair<std::int64_t, std::int64_t>> parts = {
      {at.qkv, 5120},    {at.state, 67584}, {at.attention, 2048}, {at.residual, 2880},
      {at.router, 4356}, {at.h, 5760},      {at.y, 11520}};
  std::int64_t next = 0;
  for (const auto& [begin, words] : parts) {
    EXPECT_EQ(begin % 32, 0);  // lines of their own
    EXPECT_GE(begin, next);
    next = begin + words;
  }
  EXPECT_GE(at.words, next);
  EXPECT_EQ(decode_step_exchange_bytes(kGptOss20b), std::int64_t{96} * at.words);
}

TEST(DecodeStep, RefusesWhatItIsNotCutForAndSaysWhy) {
  EXPECT_THAT(std::string(decode_step_supports(kGptOss20b, {}).message()),
              HasSubstr("want a GPU of compute capability 9.x, found none"));
  EXPECT_THAT(refusal(kGptOss20b, {.name = "other", .sm = 100, .num_sms = 132}),
              HasSubstr("found other"));
  const auto with = [](auto member, std::int32_t value) {
    DecodeSizes sizes = kGptOss20b;
    sizes.*member = value;
    return refusal(sizes);
  };
  EXPECT_THAT(with(&DecodeSizes::hidden, 2912), HasSubstr("at most 2880 hidden, found 2912"));
  EXPECT_THAT(with(&DecodeSizes::hidden, 2872), HasSubstr("multiples of 32"));
  EXPECT_THAT(with(&DecodeSizes::intermediate, 3072), HasSubstr("at most 2880 intermediate"));
  EXPECT_THAT(with(&DecodeSizes::page_size, 96),
              HasSubstr("power of two from 32 on, found 2880, 2880, 96"));
  EXPECT_THAT(with(&DecodeSizes::page_size, 16), HasSubstr("power of two from 32 on"));
  EXPECT_THAT(with(&DecodeSizes::num_experts, 129), HasSubstr("at most 128 experts, found 129"));
  EXPECT_THAT(with(&DecodeSizes::top_k, 5), HasSubstr("at most 4 experts a token"));
  EXPECT_THAT(with(&DecodeSizes::num_layers, 65), HasSubstr("at most 64 layers"));
  EXPECT_THAT(with(&DecodeSizes::num_heads, 72), HasSubstr("at most 4096 channels"));
  EXPECT_THAT(with(&DecodeSizes::num_heads, 63), HasSubstr("63 heads on 8"));
  EXPECT_THAT(with(&DecodeSizes::num_kv_heads, 4), HasSubstr("at most 8 heads of a key head"));
  DecodeSizes few = kGptOss20b;
  few.num_blocks = 130;  // 11.08 bands of gate/up each
  EXPECT_THAT(refusal(few, hopper(130)),
              HasSubstr("at most 11 bands of gate/up a multiprocessor, found 12"));
  EXPECT_THAT(refusal(few), HasSubstr("a block for each of 132 multiprocessors"));
  // What is left is whether the build has the kernel.
  const std::string rest = refusal(kGptOss20b);
  EXPECT_EQ(rest.empty(), !decode_step_instances().empty());
  EXPECT_TRUE(rest.empty() || rest == "decode_step: this build has no kernel for it") << rest;
}

TEST(DecodeStep, CountsTheBytesOfGptOss20b) {
  std::vector<DecodeLayer> layers(24);
  for (std::size_t i = 0; i < layers.size(); i += 2) {
    layers[i].window = 128;
  }
  const DecodeStepArgs args{.sizes = kGptOss20b, .layers = layers};
  // 24 (q, k, v, o, router, 4 experts of 3 * 2,880^2 codes with scales) and the head.
  const std::int64_t weights =
      24LL * (2LL * 2880 * (5120 + 4096 + 32) + 12LL * 180 * 24480) + 2LL * 2880 * 201088;
  EXPECT_EQ(decode_step_bytes(args, 0), weights);
  EXPECT_EQ(decode_step_bytes(args, 1024) - weights, 12LL * (1024 + 127) * 2048);
}

}  // namespace
}  // namespace nibble::kernels
