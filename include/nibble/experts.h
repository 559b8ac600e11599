// The mixture-of-experts layer of gpt-oss over weights that stay in the caller's memory.
#pragma once

#include <cstdint>
#include <memory>

#include "nibble/status.h"

namespace nibble {

/// MXFP4 experts as gpt-oss checkpoints store them: blocks of 32 values along the input axis, two
/// values a byte, the earlier in the low nibble; value = e2m1 * 2^(scale - 127). Rows of the first
/// matrix alternate gate, up. Biases are bfloat16 bits. No alignment is asked for.
/// The memory must live as long as the `Experts` that reads it, and must not change.
struct Mxfp4Experts {
  const std::uint8_t* gate_up_blocks =
      nullptr;  ///< [num_experts, 2 * intermediate, hidden / 32, 16]
  const std::uint8_t* gate_up_scales = nullptr;  ///< [num_experts, 2 * intermediate, hidden / 32]
  const std::uint16_t* gate_up_bias = nullptr;   ///< [num_experts, 2 * intermediate] or null
  const std::uint8_t* down_blocks = nullptr;     ///< [num_experts, hidden, intermediate / 32, 16]
  const std::uint8_t* down_scales = nullptr;     ///< [num_experts, hidden, intermediate / 32]
  const std::uint16_t* down_bias = nullptr;      ///< [num_experts, hidden] or null
  std::int32_t num_experts = 0;
  std::int32_t hidden = 0;        ///< multiple of 32
  std::int32_t intermediate = 0;  ///< multiple of 32
  float alpha = 1.702F;           ///< of the activation
  float limit = 7.0F;             ///< clamp of the activation
};

struct ExpertsOptions {
  std::int32_t num_threads = 0;   ///< 0: every processor this process may use
  std::int32_t max_tokens = 256;  ///< tokens of one pass; more are cut into passes
  std::int32_t max_top_k = 8;
  bool rounds_to_bf16 = false;         ///< inputs of both products are rounded to bfloat16
  bool use_reference_kernels = false;  ///< scalar, double accumulation: slow, for checking
};

/// Owns its workers and its workspace. One thread at a time may call `forward`.
class Experts {
 public:
  /// kInvalidArgument for null pointers and sizes that are not whole blocks.
  static Result<Experts> create(const Mxfp4Experts& weights, const ExpertsOptions& options = {});
  Experts(Experts&&) noexcept;
  Experts& operator=(Experts&&) noexcept;
  ~Experts();

  /// out[t] = sum_j weights[t, j] * expert_{ids[t, j]}(x[t]), j ascending, with
  ///
  ///   u = W1 x + b1;  g = min(u[2i], limit);  l = clamp(u[2i + 1], -limit, limit)
  ///   expert(x) = W2 ((l + 1) * g * sigmoid(alpha * g)) + b2
  ///
  /// A slot with id -1 (expert of another rank) contributes exactly zero; a token without local
  /// experts gets a row of zeros. `out` is overwritten whatever it held. Sums are float32 in an
  /// order fixed by the sizes: a token's bits do not depend on the batch or the number of threads.
  ///
  /// kInvalidArgument, naming token and slot, for an id outside [-1, num_experts).
  Status forward(const float* x,           ///< [num_tokens, hidden]
                 const std::int32_t* ids,  ///< [num_tokens, top_k]
                 const float* weights,     ///< [num_tokens, top_k]
                 std::int32_t num_tokens,  ///< may be 0
                 std::int32_t top_k,       ///< 1..max_top_k
                 float* out);              ///< [num_tokens, hidden], not x

  std::int64_t workspace_bytes() const;

 private:
  struct State;
  explicit Experts(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace nibble
