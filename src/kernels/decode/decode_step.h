// One token of one sequence through the whole model, in one persistent kernel: what
// model/gpt_oss.cpp computes with a kernel for each operation, from the embedding to the logits.
//
// A block on each multiprocessor; a producer warp streams weights through a ring in shared memory
// and runs ahead of the products; what one block computes and another needs goes through
// `exchange`, word by word: a reader waits until a word is no longer a hole. docs/kernels/decode.md
// has the phases and their speed.
//
// Weights are exact. Sums are fp32 in an order fixed by the sizes, the position and the number of
// multiprocessors; the same inputs give the same bits. Values are rounded to bf16 where the general
// path rounds them (docs/numerics.md), but for the router's inputs, which stay fp32.
//
// Every wait is bounded: a block that waits for longer than 10 s goes on with what it has and says
// so in `lost`. All blocks are resident, or the launch fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/bf16.h"
#include "kernels/attention/attention.h"
#include "kernels/common/instance.h"
#include "kernels/decode/decode_sizes.h"
#include "kernels/moe/moe_tiles.h"
#include "nibble/status.h"
#include "tensor/exec.h"

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

// kUnsupported, with what was wanted and found, where the kernel cannot run: what it is chosen by.
Status decode_step_supports(const DecodeSizes& sizes, const Exec& exec);
Status decode_step(const DecodeStepArgs& args, const Exec& exec);
std::int64_t decode_step_exchange_bytes(const DecodeSizes& sizes);
// kUnsupported: such a block does not fit on a multiprocessor.
Status decode_step_not_resident(int threads, std::size_t shared_bytes);
// Weights, and keys and values in front of `position`.
std::int64_t decode_step_bytes(const DecodeStepArgs& args, std::int32_t position);

// Every kernel of this build: none without CUDA.
std::span<const Instance<DecodeStepArgs>> decode_step_instances();

}  // namespace nibble::kernels
