// What a decode step is given: plain data for host and device.
#pragma once

#include <cstdint>
#include <span>

#include "formats/bf16.h"
#include "kernels/common/attention_sequence.h"
#include "kernels/common/mxfp4_tiles.h"
#include "kernels/decode/device/decode_sizes.h"

namespace nibble::kernels {

inline constexpr std::int32_t kDecodeMaxLayers = 64;

// Moments of a layer that a step can be asked to note: when the part is done in one block.
enum class DecodeMark : std::uint8_t {
  kInput,      // experts of the layer before added, norm
  kQkv,        // q, k, v
  kAttention,  // this block's keys
  kMixed,      // every block's keys
  kOutput,     // output product
  kRouted,     // experts chosen, their input there
  kGateUp,
  kHidden,  // every block's gate/up
  kDown,
};
inline constexpr std::int32_t kDecodeMarks = 9;

// Every pointer is memory of the GPU; matrices are 16-byte aligned.
struct DecodeLayer {
  const float* attention_norm = nullptr;  // [hidden]
  const formats::Bf16* qkv = nullptr;     // [qkv_width, hidden]
  const float* qkv_bias = nullptr;        // [qkv_width]
  const float* sinks = nullptr;           // [num_heads]
  const formats::Bf16* o = nullptr;       // [hidden, q_width]
  const float* o_bias = nullptr;          // [hidden]
  const float* mlp_norm = nullptr;        // [hidden]
  const formats::Bf16* router = nullptr;  // [num_experts, hidden]
  const float* router_bias = nullptr;     // [num_experts]
  Mxfp4Tiles gate_up;                     // rows 2 * intermediate, cols hidden
  Mxfp4Tiles down;                        // rows hidden, cols intermediate
  formats::Bf16* k_cache = nullptr;       // [num_pages, num_kv_heads, page_size, 64]
  formats::Bf16* v_cache = nullptr;
  std::int32_t cache = 0;   // whose pages: DecodeStepArgs::caches
  std::int32_t window = 0;  // keys seen, the current one included; 0: all
};

// Where the token's keys lie: layers with and without a window keep different pages.
struct DecodeCache {
  const AttentionSequence* sequence = nullptr;  // [1], of one row
  const std::int64_t* slot = nullptr;  // [1]: where the row's key and value go; negative: nowhere
};
inline constexpr std::int32_t kDecodeCaches = 2;

struct DecodeStepArgs {
  DecodeSizes sizes;
  std::span<const DecodeLayer> layers;
  DecodeCache caches[kDecodeCaches];
  const formats::Bf16* embedding = nullptr;  // [vocab, hidden]
  const formats::Bf16* head = nullptr;       // [vocab, hidden]
  const float* final_norm = nullptr;         // [hidden]
  const float* inv_freq = nullptr;           // [32]
  const std::int32_t* token_id = nullptr;    // [1] in 0..vocab - 1
  const std::int32_t* position = nullptr;    // [1]
  float* logits = nullptr;                   // [vocab]
  std::int32_t* bad_rows = nullptr;  // [num_layers]: 0 where the router saw NaN or +Inf, else left
  std::int32_t* lost = nullptr;      // [1]: 0 when a wait was given up, else left
  // decode_step_exchange_bytes(), every byte 0xFF before each call.
  std::uint32_t* exchange = nullptr;
  // Cycles of block 0's multiprocessor at each mark, then before and after the head; null: not
  // noted.
  std::int64_t* marks = nullptr;  // [num_layers * kDecodeMarks + 2]
  float eps = 1e-5F;
  float concentration = 1.0F;  // YaRN's
  float scale = 0.125F;        // of scores
  float alpha = 1.702F;
  float limit = 7.0F;
};

}  // namespace nibble::kernels
