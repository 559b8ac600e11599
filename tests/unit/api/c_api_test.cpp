#include "nibble/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "nibble/status.h"

namespace nibble {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CApi, CodesHaveTheNamesOfTheLibrary) {
  EXPECT_STREQ(nibble_code_name(NIBBLE_OK), name(Code::kOk).data());
  EXPECT_STREQ(nibble_code_name(NIBBLE_INTERNAL), name(Code::kInternal).data());
  EXPECT_THAT(nibble_version(), ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  nibble_free(nullptr);
}

TEST(CApi, RoutesWithDefaults) {
  const float logits[] = {1, 3, 2, 0, 0, 5};
  std::int32_t ids[4] = {-7, -7, -7, -7};
  float weights[4];
  nibble_route_args args;
  nibble_route_args_init(&args);
  args.logits = logits;
  args.ids = ids;
  args.weights = weights;
  args.num_tokens = 2;
  args.num_experts = 3;
  args.top_k = 2;
  nibble_message message = {"left over"};
  ASSERT_EQ(nibble_route(&args, &message), NIBBLE_OK) << message.text;
  EXPECT_STREQ(message.text, "");
  EXPECT_THAT(ids, ElementsAre(1, 2, 2, 0));
  EXPECT_FLOAT_EQ(weights[0] + weights[1], 1.0F);
  args.top_k = 4;
  EXPECT_EQ(nibble_route(&args, &message), NIBBLE_INVALID_ARGUMENT);
  EXPECT_THAT(message.text, HasSubstr("top_k in 1..3"));
  EXPECT_EQ(nibble_route(&args, nullptr), NIBBLE_INVALID_ARGUMENT);
  args.score = 4;
  EXPECT_EQ(nibble_route(&args, &message), NIBBLE_INVALID_ARGUMENT);
  EXPECT_THAT(message.text, HasSubstr("score in 0..3, got 4"));
  EXPECT_EQ(nibble_route(nullptr, &message), NIBBLE_INVALID_ARGUMENT);
  EXPECT_STREQ(message.text, "args is null");
}

TEST(CApi, QuantisesAndBack) {
  // A block whose values are all of FP4, times 4.
  std::vector<float> x(64, 0.0F);
  const float values[] = {0, 2, 4, 6, 8, 12, 16, 24};
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = (i % 2 == 0 ? 1.0F : -1.0F) * values[i % 8];
  }
  nibble_quantize_args args;
  nibble_quantize_args_init(&args);
  args.rows = 2;
  args.cols = 32;
  args.dtype = NIBBLE_F32;
  args.num_threads = 1;
  nibble_quantized_size size;
  nibble_message message;
  ASSERT_EQ(nibble_quantized_sizes(&args, &size, &message), NIBBLE_OK) << message.text;
  ASSERT_EQ(size.value_bytes, 32);
  ASSERT_EQ(size.scale_bytes, 2);
  std::vector<std::uint8_t> codes(32);
  std::uint8_t scales[2];
  args.dense = x.data();
  args.values = codes.data();
  args.scales = scales;
  nibble_quantize_counts counts;
  ASSERT_EQ(nibble_quantize(&args, &counts, &message), NIBBLE_OK) << message.text;
  EXPECT_EQ(scales[0], 129);  // 2^2
  EXPECT_EQ(codes[0], 0x90);  // 0, then -0.5
  EXPECT_EQ(codes[3], 0xF6);  // 4, then -6
  EXPECT_EQ(counts.num_saturated, 0);
  EXPECT_EQ(counts.first_non_finite, -1);
  std::vector<float> back(64, -7.0F);
  args.dense = back.data();
  ASSERT_EQ(nibble_dequantize(&args, &message), NIBBLE_OK) << message.text;
  EXPECT_EQ(back, x);
  args.format = 3;
  EXPECT_EQ(nibble_quantize(&args, nullptr, &message), NIBBLE_INVALID_ARGUMENT);
  EXPECT_THAT(message.text, HasSubstr("format in 0..2, got 3"));
  args.format = NIBBLE_MXFP4;
  args.backend = NIBBLE_BACKEND_CUDA;
  EXPECT_EQ(nibble_quantize(&args, nullptr, &message), NIBBLE_UNSUPPORTED);
}

TEST(CApi, RaggedRowsIntoTheCallersArrays) {
  const std::int32_t ids[] = {1, 0, 1, -1};
  std::int32_t sizes[2];
  std::int32_t offs[3];
  std::int32_t gather[4];
  std::int32_t scatter[4];
  std::int32_t block_offs[12];
  ASSERT_EQ(nibble_max_blocks(4, 2), 2);
  std::int32_t schedule[8];
  nibble_ragged_args args;
  nibble_ragged_args_init(&args);
  args.ids = ids;
  args.num_tokens = 2;
  args.top_k = 2;
  args.num_experts = 2;
  args.slice_sizes = sizes;
  args.slice_offs = offs;
  args.gather = gather;
  args.scatter = scatter;
  args.block_offs = block_offs;
  args.schedule = schedule;
  nibble_message message;
  ASSERT_EQ(nibble_ragged(&args, &message), NIBBLE_OK) << message.text;
  EXPECT_THAT(sizes, ElementsAre(1, 2));
  EXPECT_THAT(gather, ElementsAre(1, 0, 2, -1));
  EXPECT_THAT(scatter, ElementsAre(1, 0, 2, -1));
  args.num_block_sizes = -1;
  EXPECT_EQ(nibble_ragged(&args, &message), NIBBLE_INVALID_ARGUMENT);
}

TEST(CApi, ExpertsAreHandles) {
  const std::vector<std::uint8_t> blocks(2 * 64 * 16, 0x22);  // every value 1
  const std::vector<std::uint8_t> scales(2 * 64, 127);
  nibble_experts_args args;
  nibble_experts_args_init(&args);
  args.gate_up_blocks = blocks.data();
  args.gate_up_scales = scales.data();
  args.down_blocks = blocks.data();
  args.down_scales = scales.data();
  args.num_experts = 2;
  args.hidden = 32;
  args.intermediate = 32;
  args.num_threads = 1;
  nibble_experts* experts = nullptr;
  nibble_message message;
  ASSERT_EQ(nibble_experts_create(&args, &experts, &message), NIBBLE_OK) << message.text;
  const std::vector<float> x(32, 0.0F);
  std::vector<float> out(32, -7.0F);
  const std::int32_t ids[] = {1};
  const float weights[] = {1.0F};
  const nibble_experts_call call = {x.data(), ids, weights, 1, 1, out.data()};
  EXPECT_EQ(nibble_experts_forward(experts, &call, &message), NIBBLE_OK) << message.text;
  EXPECT_THAT(out, ::testing::Each(0.0F));  // gate 0 makes every product 0
  EXPECT_EQ(nibble_experts_forward(nullptr, &call, &message), NIBBLE_INVALID_ARGUMENT);
  nibble_experts_destroy(experts);
  nibble_experts_destroy(nullptr);
  args.hidden = 33;
  EXPECT_EQ(nibble_experts_create(&args, &experts, &message), NIBBLE_INVALID_ARGUMENT);
  EXPECT_EQ(experts, nullptr);
  EXPECT_THAT(message.text, HasSubstr("hidden 33"));
}

TEST(CApi, PlansCarryTheirReason) {
  nibble_plan_args args;
  nibble_plan_args_init(&args);
  args.arch = "sm_120";
  args.tokens = 64;
  args.num_experts = 128;
  args.top_k = 4;
  args.n = 5760;
  args.k = 2880;
  nibble_plan plan;
  char* reason = nullptr;
  nibble_message message;
  ASSERT_EQ(nibble_plan_product(&args, &plan, &reason, &message), NIBBLE_OK) << message.text;
  EXPECT_STREQ(plan.layout, "strided");
  EXPECT_STREQ(plan.form, "tiled");
  EXPECT_GE(plan.num_warps, 4);
  EXPECT_EQ(plan.verified, 0);
  EXPECT_THAT(reason, HasSubstr("num_warps: "));
  nibble_free(reason);
  args.arch = "sm_61";
  EXPECT_EQ(nibble_plan_product(&args, &plan, &reason, &message), NIBBLE_UNSUPPORTED);
  EXPECT_EQ(reason, nullptr);
  args.arch = nullptr;
  EXPECT_EQ(nibble_plan_product(&args, &plan, nullptr, &message), NIBBLE_INVALID_ARGUMENT);
  EXPECT_STREQ(message.text, "arch is null");
}

TEST(CApi, CapabilitiesNameTheProcessor) {
  char* text = nullptr;
  nibble_message message;
  const nibble_code code = nibble_capabilities(&text, &message);
  EXPECT_TRUE(code == NIBBLE_OK || code == NIBBLE_UNSUPPORTED) << message.text;
  ASSERT_NE(text, nullptr);
  EXPECT_THAT(text, HasSubstr("cpu"));
  nibble_free(text);
}

}  // namespace
}  // namespace nibble
