#include "kernels/attention/attention_plan.h"

#include <gtest/gtest.h>

#include <vector>

namespace nibble::kernels {
namespace {

AttentionArgs args_for(const std::vector<AttentionSequence>& sequences, std::int32_t window,
                       std::vector<std::byte>& workspace) {
  AttentionArgs args{.num_heads = 8, .num_kv_heads = 1, .head_dim = 64, .window = window};
  args.sequences = sequences;
  args.workspace = workspace;
  return args;
}

TEST(AttentionCudaPlan, CutsOneRowSequencesIntoChunksRoundedUpToAPowerOfTwo) {
  std::vector<std::byte> room(1 << 24);
  const std::vector<AttentionSequence> sequences = {{.num_rows = 1, .first_position = 1279},
                                                    {.num_rows = 70, .first_position = 9000},
                                                    {.num_rows = 1, .first_position = 5}};
  const AttentionCudaPlan plan = plan_attention_cuda(args_for(sequences, 0, room));
  EXPECT_EQ(plan.decode_sequences, 2);
  EXPECT_EQ(plan.prefill_rows, 70);
  EXPECT_EQ(plan.max_chunks, 8);  // keys 0 .. 1279 lie in five chunks
  EXPECT_EQ(plan.chunks_per_block, 1);
  EXPECT_EQ(plan.wave, 3);
}

TEST(AttentionCudaPlan, AWindowNeedsNoPartialResults) {
  std::vector<std::byte> none;
  const std::vector<AttentionSequence> sequences = {{.num_rows = 1, .first_position = 100000}};
  for (const std::int32_t at : {100000, 100096, 255, 256, 0}) {
    std::vector<AttentionSequence> one = sequences;
    one[0].first_position = at;
    const AttentionCudaPlan plan = plan_attention_cuda(args_for(one, 128, none));
    EXPECT_LE(plan.max_chunks, 2) << at;
    EXPECT_EQ(plan.chunks_per_block, plan.max_chunks) << at;
    EXPECT_EQ(plan.wave, 1) << at;
  }
}

TEST(AttentionCudaPlan, TheBoundHoldsWhereverTheSequencesAre) {
  for (const std::int32_t window : {0, 128, 700, 4096}) {
    for (const std::int32_t length : {1, 256, 257, 3000, 131072}) {
      std::vector<std::byte> none;
      AttentionArgs args = args_for({}, window, none);
      std::vector<std::byte> room(
          static_cast<std::size_t>(attention_cuda_workspace_bytes(args, 1, length)));
      for (std::int32_t at = 0; at < length; at += std::max(1, length / 97)) {
        const std::vector<AttentionSequence> one = {{.num_rows = 1, .first_position = at}};
        EXPECT_GE(plan_attention_cuda(args_for(one, window, room)).wave, 1)
            << window << ' ' << length << ' ' << at;
      }
    }
  }
}

TEST(AttentionCudaPlan, ManySequencesAreStreamedUnlessOneIsVeryLong) {
  const auto plan = [](std::int32_t sequences, std::int32_t chunks) {
    return AttentionCudaPlan{.decode_sequences = sequences, .max_chunks = chunks};
  };
  EXPECT_TRUE(is_streamed(plan(33, 64), 8, 132));  // 264 pairs of sequence and head
  EXPECT_FALSE(is_streamed(plan(32, 64), 8, 132));
  EXPECT_FALSE(is_streamed(plan(33, 128), 8, 132));
  EXPECT_TRUE(is_streamed(plan(264, 1), 1, 132));
}

}  // namespace
}  // namespace nibble::kernels
