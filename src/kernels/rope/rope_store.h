// Rotary embedding of q and k, and the write of k and v into the paged cache.
//
// Split-half pairing over head_dim channels, j < head_dim / 2, angle a = f32(position) *
// inv_freq[j]:
//
//   out[j]       = x[j] * c * cos(a) - x[j + d/2] * c * sin(a)
//   out[j + d/2] = x[j + d/2] * c * cos(a) + x[j] * c * sin(a)
//
// c is YaRN's concentration; it multiplies q and k alike. The angle is fp32, as in the reference
// model (docs/numerics.md says what that costs at long range).
//
// Cache layout of K and of V, one layer: [num_pages, num_kv_heads, page_size, head_dim] kv_dtype.
// With kE4M3 each row of head_dim codes has a scale of its own (formats/e4m3_row.h), chosen from
// the row and stored with it. Slot s is row s % page_size of page s / page_size. A negative slot
// stores nothing (the row is outside every window that is still to come, or padding).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/instance.h"
#include "nibble/status.h"
#include "tensor/dtype.h"
#include "tensor/exec.h"

namespace nibble::kernels {

struct RopeStoreArgs {
  const float* qkv = nullptr;               // [rows, (num_heads + 2 * num_kv_heads) * head_dim]
  const std::int32_t* positions = nullptr;  // [rows]
  const std::int64_t* slots = nullptr;      // [rows]
  const float* inv_freq = nullptr;          // [head_dim / 2]
  void* q_out = nullptr;                    // [rows, num_heads, head_dim] q_dtype
  void* k_cache = nullptr;
  void* v_cache = nullptr;
  std::uint8_t* k_scales = nullptr;  // [num_pages, num_kv_heads, page_size] ue8m0, kE4M3 only
  std::uint8_t* v_scales = nullptr;  // likewise
  std::int32_t rows = 0;
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;  // even
  std::int32_t page_size = 0;
  float concentration = 1.0F;
  DType q_dtype = DType::kF32;   // kF32 or kBF16
  DType kv_dtype = DType::kF32;  // kF32, kBF16 or kE4M3
};

Status rope_store(const RopeStoreArgs& args, const Exec& exec);
Status rope_store_ref(const RopeStoreArgs& args);

// YaRN frequencies (Peng et al. 2023, with the ramp limits rounded outwards when `truncate`).
struct YarnParams {
  double theta = 150000.0;
  double factor = 1.0;  // 1: plain rotary embedding
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double original_max_position = 4096.0;
  bool truncate = false;
};
void yarn_inv_freq(const YarnParams& params, std::int32_t head_dim, float* inv_freq);
float yarn_concentration(const YarnParams& params);  // 0.1 ln(factor) + 1, or 1 when factor <= 1

// Every kernel of this build. Tests and benchmarks walk it.
std::span<const Instance<RopeStoreArgs>> rope_store_instances();

}  // namespace nibble::kernels
