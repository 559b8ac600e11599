// Mixture of experts of gpt-oss, from routed rows to the residual:
//
//   u = W1_e x + b1_e                       [2 * intermediate]; even rows gate, odd rows up
//   g = min(u[2i], limit)   l = clamp(u[2i + 1], -limit, limit)
//   h_i = (l + 1) * g * sigmoid(alpha * g)
//   out[t, :] += sum_j weights[t, j] * (W2_e h + b2_e),   e = ids[t, j], j ascending
//
// Products accumulate in fp32 in an order fixed by the inner size; h is rounded to x_dtype. A row's
// bits do not depend on the batch. An id outside [0, num_experts) is refused.
//
// With ExpertInputs::kInt8 x and h enter their products as whole numbers with a scale for each 32
// columns (int8_groups.h): h from its float32 values, whatever x_dtype is. Weights of MXFP4, on a
// processor; anything else is kUnsupported. Every kernel of that kind gives the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "formats/bf16.h"
#include "kernels/common/instance.h"
#include "nibble/status.h"
#include "tensor/dtype.h"
#include "tensor/exec.h"

namespace nibble::kernels {

// MXFP4 as published: blocks of 32 along the inner axis, byte b of a block holds value 2b in its
// low nibble and 2b + 1 in its high nibble; value = e2m1 * 2^(scale - 127).
struct Mxfp4Rows {
  const std::uint8_t* blocks = nullptr;  // [num_experts, rows, cols / 32, 16]
  const std::uint8_t* scales = nullptr;  // [num_experts, rows, cols / 32]
};
struct Bf16Rows {
  const formats::Bf16* values = nullptr;  // [num_experts, rows, cols]
};
// NVFP4 (formats/nvfp4.h): blocks of 16, nibbles as above; value = f32(e2m1 * f32(e4m3 * global)).
// It need not be a bf16 number, so no kernel narrows it.
struct Nvfp4Rows {
  const std::uint8_t* blocks = nullptr;  // [num_experts, rows, cols / 2]
  const std::uint8_t* scales = nullptr;  // [num_experts, rows, cols / 16] e4m3
  const float* globals = nullptr;        // [num_experts]
};
using ExpertRows = std::variant<Mxfp4Rows, Bf16Rows, Nvfp4Rows>;

// What x and h are when they enter a product.
enum class ExpertInputs : std::uint8_t {
  kGiven,  // numbers of x_dtype
  kInt8,
};

struct ExpertMatrix {
  ExpertRows weight;
  const formats::Bf16* bias = nullptr;  // [num_experts, rows] or null
};

struct MoeArgs {
  const void* x = nullptr;            // [num_tokens, hidden] x_dtype
  const std::int32_t* ids = nullptr;  // [num_tokens, top_k]
  const float* weights = nullptr;     // [num_tokens, top_k]
  float* out = nullptr;               // [num_tokens, hidden], added to
  ExpertMatrix gate_up;               // rows 2 * intermediate, cols hidden
  ExpertMatrix down;                  // rows hidden, cols intermediate
  std::int32_t num_tokens = 0;
  std::int32_t hidden = 0;        // multiple of 32
  std::int32_t intermediate = 0;  // multiple of 32
  std::int32_t num_experts = 0;
  std::int32_t top_k = 0;
  float alpha = 1.702F;
  float limit = 7.0F;
  DType x_dtype = DType::kF32;  // kF32 or kBF16
  ExpertInputs inputs = ExpertInputs::kGiven;
  std::span<std::byte> workspace;  // >= moe_workspace_bytes(), 64-byte aligned
};

Status moe(const MoeArgs& args, const Exec& exec);
Status moe_ref(const MoeArgs& args);
std::int64_t moe_workspace_bytes(const MoeArgs& args, std::int32_t num_tokens);
// Bytes of the experts in use, each read once.
std::int64_t moe_bytes(const MoeArgs& args);
std::int64_t moe_flops(const MoeArgs& args);

// Every kernel of this build. Tests and benchmarks walk it.
std::span<const Instance<MoeArgs>> moe_instances();

}  // namespace nibble::kernels
