// Sizes of one decode step, how its work is shared out among blocks, and where blocks leave what
// others read: plain arithmetic, the same on host and device.
#pragma once

#include <cstdint>

namespace nibble::kernels {

struct DecodeSizes {
  std::int32_t num_layers = 0;
  std::int32_t hidden = 0;
  std::int32_t intermediate = 0;
  std::int32_t num_experts = 0;
  std::int32_t top_k = 0;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t page_size = 0;
  std::int32_t vocab = 0;
  std::int32_t num_blocks = 0;  // one on each multiprocessor

  constexpr std::int32_t head_dim() const { return 64; }
  constexpr std::int32_t q_width() const { return num_heads * head_dim(); }
  constexpr std::int32_t kv_width() const { return num_kv_heads * head_dim(); }
  constexpr std::int32_t qkv_width() const { return q_width() + 2 * kv_width(); }
  constexpr std::int32_t group() const { return num_heads / num_kv_heads; }
  constexpr std::int32_t gate_up_bands() const { return (2 * intermediate + 15) / 16; }
  constexpr std::int32_t down_bands() const { return (hidden + 15) / 16; }
  // Of a sum that all blocks have parts of, in whole pieces of 16 bytes.
  constexpr std::int32_t part_words() const { return (num_blocks + 3) / 4 * 4; }
  // Blocks that may share the keys of one kv head.
  constexpr std::int32_t max_splits() const {
    const std::int32_t most = num_blocks / num_kv_heads;
    return most < 16 ? most : 16;
  }
};

struct DecodeRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  constexpr std::int32_t size() const { return end - begin; }
};

// Block `block`'s part of `count` things: contiguous, parts differ by one at most. count *
// num_blocks stays below 2^31: a GPU divides 32 bits in a third of the time.
constexpr DecodeRange decode_share(std::int32_t count, std::int32_t block,
                                   std::int32_t num_blocks) {
  return {count * block / num_blocks, count * (block + 1) / num_blocks};
}
constexpr std::int32_t decode_largest_share(std::int32_t count, std::int32_t num_blocks) {
  return (count + num_blocks - 1) / num_blocks;
}

// Floats of a query's state over some keys: maximum, total, sums by channel.
inline constexpr std::int32_t kDecodeStateFloats = 2 + 64;

// What blocks tell each other in one layer, in words of 4 bytes from the layer's start. Every word
// is written once a step; kDecodeHole says that it is still to come.
inline constexpr std::uint32_t kDecodeHole = 0xFFFFFFFFU;
// Counters of those who have told; they begin at kDecodeHole, which is -1. In lines of their own.
enum class DecodeCount : std::int32_t { kAttention, kRouter, kHidden, kDown };
inline constexpr std::int32_t kDecodeCounts = 4;
inline constexpr std::int32_t kDecodeCountWords = 32;
struct DecodeExchange {
  std::int64_t qkv = 0;        // float [qkv_width]
  std::int64_t state = 0;      // float [num_kv_heads, max_splits, group, kDecodeStateFloats]
  std::int64_t attention = 0;  // pairs of bf16 [num_heads * head_dim / 2]
  std::int64_t residual = 0;   // float [hidden] after attention
  // float [num_experts + 1, part_words()]: parts; the last: of squares
  std::int64_t router = 0;
  std::int64_t h = 0;       // pairs of bf16 [top_k, intermediate / 2]
  std::int64_t y = 0;       // float [top_k, hidden]
  std::int64_t counts = 0;  // [kDecodeCounts, kDecodeCountWords]: the first word of each
  std::int64_t words = 0;   // of a layer

  constexpr explicit DecodeExchange(const DecodeSizes& sizes) {
    const auto take = [this](std::int64_t count) {
      const std::int64_t at = words;
      words += (count + 31) / 32 * 32;
      return at;
    };
    qkv = take(sizes.qkv_width());
    state = take(std::int64_t{sizes.num_kv_heads} * sizes.max_splits() * sizes.group() *
                 kDecodeStateFloats);
    attention = take(sizes.q_width() / 2);
    residual = take(sizes.hidden);
    router = take(std::int64_t{sizes.num_experts + 1} * sizes.part_words());
    h = take(std::int64_t{sizes.top_k} * sizes.intermediate / 2);
    y = take(std::int64_t{sizes.top_k} * sizes.hidden);
    counts = take(std::int64_t{kDecodeCounts} * kDecodeCountWords);
  }
};

}  // namespace nibble::kernels
