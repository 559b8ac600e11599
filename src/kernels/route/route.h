// Router in its general form: scores from logits, a choice of k experts, their weights.
//
//   score     s[e] = logit | softmax over all experts | sigmoid(logit) | sqrt(softplus(logit))
//   key       c[e] = s[e] + bias[e]; the bias takes part in the choice only
//   groups    experts lie in num_groups equal runs; the topk_groups best groups stay, the experts
//   of
//             the others cannot be chosen. A group counts the sum of its two best keys, or its best
//   choice    the k largest keys; ties go to the smaller index (for groups too)
//   weights   kLogits: softmax over the k chosen logits. Otherwise s[e], divided by
//             (sum of the chosen s + renormalise_epsilon) if asked. Then times `scaling`.
//   placement logical expert -> physical (remap) -> local (range of this rank), -1 if not here
//
// Numerics: a score is computed in double and rounded once to fp32 for the key, which adds the bias
// in fp32. Without bias, and with groups counted by their best (or none), the logit itself is the
// key: the same choice, free of the ties that rounding makes. Weights are computed in double, sums
// in slot order (softmax over all: expert order), and rounded once. A row's bits depend on that row
// alone; route() and route_ref() give the same bits.
//
// Edges, all tested:
//   rows >= num_valid_tokens are padding: ids 0..k-1 (-1 under a placement), weights 0, logits and
//                            given ids unread
//   -Inf                     is the least key; under kLogits and kSoftmax its weight is 0
//   NaN or +Inf in a valid row, or weights that are not finite (softmax over -Inf alone, zero sum
//   renormalised without epsilon): a fault. The row is written as padding, the others as ever;
//   then kInternal, naming the first faulty row and how many there are
//   zero tokens              nothing is written
// kInvalidArgument: k outside 1..num_experts, groups that do not divide or cannot hold k, bias of
// another length or with a value that is not finite, given ids outside [0, num_experts), a remap
// that is not one-to-one. Given ids may repeat within a row: each slot counts for itself.
#pragma once

#include <cstdint>

#include "nibble/status.h"
#include "tensor/dtype.h"
#include "tensor/exec.h"

namespace nibble::kernels {

inline constexpr std::int32_t kMaxExperts = 32767;  // a block schedule holds 16 bits of it

enum class RouteScore : std::uint8_t { kLogits, kSoftmax, kSigmoid, kSqrtSoftplus };
enum class GroupScore : std::uint8_t { kSumOfBestTwo, kBest };
// By falling key (gpt-oss, DeepSeek) or by rising expert (triton_kernels). Given ids keep theirs.
enum class SlotOrder : std::uint8_t { kByKey, kByExpert };

// Where experts live. Default: every expert is local under its own number.
struct ExpertPlacement {
  const std::int32_t* remap = nullptr;  // [num_experts] physical expert, -1: none; null: identity
  std::int32_t num_physical = 0;        // 0: num_experts
  std::int32_t local_begin = 0;         // physical experts of this rank: [begin, end);
  std::int32_t local_end = 0;           // 0, 0: all
  bool compact = false;  // moves the local slots of a row to its front, keeping their order
};

struct RouteOptions {
  RouteScore score = RouteScore::kLogits;
  bool renormalise = false;  // no effect under kLogits, whose weights sum to 1
  float renormalise_epsilon = 0.0F;
  float scaling = 1.0F;
  std::int32_t num_groups = 1;
  std::int32_t topk_groups = 1;
  GroupScore group_score = GroupScore::kSumOfBestTwo;
  SlotOrder slot_order = SlotOrder::kByKey;
  bool round_to_bf16 = false;  // weights become bf16 values, as gates of bf16 logits are
  ExpertPlacement placement;
};

// Never reinterpreted: the dtype travels with the pointer.
struct RouteBias {
  const void* data = nullptr;  // [num_experts] dtype; null: no bias
  DType dtype = DType::kF32;   // kF32, kBF16 or kF16
  std::int64_t count = 0;
};

struct RouteArgs {
  const float* logits = nullptr;            // [num_tokens, num_experts]
  const std::int32_t* given_ids = nullptr;  // [num_tokens, top_k]: skips the choice (hash routing)
  RouteBias bias;
  std::int32_t* ids = nullptr;         // [num_tokens, top_k]
  float* weights = nullptr;            // [num_tokens, top_k]
  std::int32_t* num_faults = nullptr;  // optional: number of faulty rows
  std::int32_t num_tokens = 0;
  std::int32_t num_valid_tokens = 0;  // <= num_tokens
  std::int32_t num_experts = 0;       // 1..kMaxExperts
  std::int32_t top_k = 0;             // 1..num_experts
  RouteOptions options;
};

// Host memory; rows are split over the pool, or run here when `exec` has none.
Status route(const RouteArgs& args, const Exec& exec);
Status route_ref(const RouteArgs& args);

// Placement of one rank of `ep_size` when no other rank exists: experts in equal runs, compacted
// rows. kInvalidArgument unless ep_size divides num_experts and rank < ep_size.
Result<ExpertPlacement> simulated_expert_parallel(std::int32_t num_experts, std::int32_t ep_size,
                                                  std::int32_t rank);
// Experts that local ids may name.
std::int32_t num_local_experts(const ExpertPlacement& placement, std::int32_t num_experts);

}  // namespace nibble::kernels
