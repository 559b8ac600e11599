// Choice of experts for tokens, and the ragged description of the rows that each expert gets. On
// host memory, without state; every function may be called from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "nibble/status.h"

namespace nibble {

/// How a logit becomes a score. Scores are computed in double and rounded once to float32.
enum class RouteScore : std::uint8_t {
  kLogits,        ///< the logit; weights are a softmax over the chosen ones (gpt-oss)
  kSoftmax,       ///< softmax over all experts (DeepSeek-V2, Mixtral with `renormalise`)
  kSigmoid,       ///< 1 / (1 + exp(-logit)) (DeepSeek-V3)
  kSqrtSoftplus,  ///< sqrt(log(1 + exp(logit))) (DeepSeek-V4)
};
/// What a group of experts counts when groups are ranked.
enum class GroupScore : std::uint8_t {
  kSumOfBestTwo,  ///< DeepSeek-V3
  kBest,          ///< DeepSeek-V2
};
/// Order of the chosen experts of a token.
enum class SlotOrder : std::uint8_t {
  kByKey,     ///< best first
  kByExpert,  ///< rising expert number, as triton_kernels does
};
enum class BiasType : std::uint8_t { kF32, kBf16, kF16 };

/// Where experts live: logical expert e is physical expert remap[e]; this rank holds the physical
/// ones of [local_begin, local_end) and calls them 0, 1, ... The default keeps all numbers.
struct ExpertPlacement {
  const std::int32_t* remap = nullptr;  ///< [num_experts], -1: nowhere; null: identity
  std::int32_t num_physical = 0;        ///< 0: num_experts
  std::int32_t local_begin = 0;
  std::int32_t local_end = 0;  ///< begin and end 0: all
  bool compact = false;        ///< local slots move to the front of a token's row
};

struct RouteOptions {
  RouteScore score = RouteScore::kLogits;
  bool renormalise = false;          ///< divide the chosen scores by their sum (+ epsilon)
  float renormalise_epsilon = 0.0F;  ///< DeepSeek: 1e-20
  float scaling = 1.0F;              ///< routed_scaling_factor
  std::int32_t num_groups = 1;       ///< n_group; divides num_experts
  std::int32_t topk_groups = 1;      ///< topk_group: groups whose experts may be chosen
  GroupScore group_score = GroupScore::kSumOfBestTwo;
  SlotOrder slot_order = SlotOrder::kByKey;
  bool round_to_bf16 = false;  ///< weights become bfloat16 values
  ExpertPlacement placement;
};

/// Inputs and outputs of `route`. No alignment is asked for; nothing may overlap.
struct RouteCall {
  const float* logits = nullptr;  ///< [num_tokens, num_experts]
  const std::int32_t* given_ids =
      nullptr;                 ///< [num_tokens, top_k] or null: no choice (hash routing)
  const void* bias = nullptr;  ///< [num_experts] or null: added for the choice only
  BiasType bias_type = BiasType::kF32;
  std::int32_t* ids = nullptr;  ///< out [num_tokens, top_k]
  float* weights = nullptr;     ///< out [num_tokens, top_k]
  std::int32_t num_tokens = 0;
  std::int32_t num_valid_tokens = -1;  ///< tokens from here on are padding; -1: num_tokens
  std::int32_t num_experts = 0;        ///< 1..32767
  std::int32_t top_k = 0;              ///< 1..num_experts
  RouteOptions options;
};

/// Chooses top_k experts for each token, largest key first, ties to the smaller number, and weighs
/// them. Keys are scores plus bias in float32; with groups, only experts of the best groups count.
///
/// Numerics: weights are computed in double and rounded once; a token's result depends on that
/// token alone, bit for bit. -Inf is the least key. Padding tokens get ids 0..top_k-1 (-1 under a
/// placement) and weights 0, and are not read.
///
/// Errors: kInvalidArgument for impossible sizes, a bias with a value that is not finite, given ids
/// out of range, a remap that sends two experts to one place. kInternal when a token that is no
/// padding holds a NaN or +Inf or has no finite weights: it is written as padding, all others are
/// right, and the message names the first such token and their number.
///
/// Source of the rules: the gpt-oss, DeepSeek-V3 and DeepSeek-V4 reference implementations;
/// docs/routing.md states each.
Status route(const RouteCall& call);

/// The experts of rank `rank` out of `ep_size` that share them in equal runs, for trying expert
/// parallelism on one machine. kInvalidArgument when num_experts is not a multiple of ep_size.
Result<ExpertPlacement> simulated_expert_parallel(std::int32_t num_experts, std::int32_t ep_size,
                                                  std::int32_t rank);

/// Rows sorted by expert. Entry (token, slot) has the flat number token * top_k + slot.
struct RaggedRows {
  std::vector<std::int32_t> slice_sizes;  ///< [num_experts] rows of each expert
  std::vector<std::int32_t> slice_offs;   ///< [num_experts + 1] first row of each, then the total
  std::vector<std::int32_t> gather;       ///< [rows] flat number of a row, stable; -1 pads the tail
  std::vector<std::int32_t> scatter;      ///< [rows] row of a flat number; -1: in no slice
  std::vector<float> gates;               ///< [rows] weight of a row; empty without weights
  std::vector<std::int32_t> block_rows;   ///< [S] as asked
  std::vector<std::int32_t> block_offs;   ///< [S, num_experts + 1] first block of each expert
  std::vector<std::int32_t> schedule;     ///< [S, num_places] (block << 16) | expert; -1 pads
  std::int64_t num_places = 0;
};

struct RaggedCall {
  const std::int32_t* ids = nullptr;  ///< [num_tokens, top_k]; -1: expert of another rank
  const float* weights = nullptr;     ///< [num_tokens, top_k] or null
  std::int32_t num_tokens = 0;
  std::int32_t num_valid_tokens = -1;  ///< -1: num_tokens
  std::int32_t top_k = 0;
  std::int32_t num_experts = 0;                              ///< 1..32767
  std::vector<std::int32_t> block_rows = {16, 32, 64, 128};  ///< each at least 16
};

/// Describes routed rows for ragged products. Deterministic, O(rows + experts).
/// kInvalidArgument for an id outside [-1, num_experts); kUnsupported when a block number would not
/// fit 15 bits. Source: RaggedTensorMetadata of triton_kernels 3.6; docs/routing.md draws it.
Result<RaggedRows> build_ragged(const RaggedCall& call);

}  // namespace nibble
