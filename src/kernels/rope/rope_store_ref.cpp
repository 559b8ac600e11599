#include <cmath>
#include <vector>

#include "kernels/common/cache_rows.h"
#include "kernels/rope/rope_store.h"

namespace nibble::kernels {
namespace {

// One head of one row, in float32 or rounded.
void rotate(const RopeStoreArgs& args, float position, const float* x, void* out, DType dtype,
            std::int64_t at) {
  const std::int32_t half = args.head_dim / 2;
  for (std::int32_t j = 0; j < half; ++j) {
    const double angle = position * args.inv_freq[j];  // float32 product, as in the reference model
    const double cosine = args.concentration * std::cos(angle);
    const double sine = args.concentration * std::sin(angle);
    store_element(out, dtype, at + j, static_cast<float>(x[j] * cosine - x[j + half] * sine));
    store_element(out, dtype, at + j + half,
                  static_cast<float>(x[j + half] * cosine + x[j] * sine));
  }
}

void store_kv(const RopeStoreArgs& args, std::int32_t row, const float* k, const float* v) {
  const std::int64_t slot = args.slots[row];
  if (slot < 0) {
    return;
  }
  const auto position = static_cast<float>(args.positions[row]);
  const auto head_dim = static_cast<std::size_t>(args.head_dim);
  std::vector<float> turned(head_dim);
  for (std::int32_t head = 0; head < args.num_kv_heads; ++head) {
    const std::int64_t to = cache_row(slot / args.page_size, args.num_kv_heads, head,
                                      args.page_size, slot % args.page_size);
    const std::int64_t from = std::int64_t{head} * args.head_dim;
    rotate(args, position, k + from, turned.data(), DType::kF32, 0);
    store_cache(args.k_cache, args.k_scales, args.kv_dtype, to, turned);
    store_cache(args.v_cache, args.v_scales, args.kv_dtype, to, {v + from, head_dim});
  }
}

}  // namespace

Status rope_store_ref(const RopeStoreArgs& args) {
  const std::int64_t q_width = std::int64_t{args.num_heads} * args.head_dim;
  const std::int64_t kv_width = std::int64_t{args.num_kv_heads} * args.head_dim;
  for (std::int32_t row = 0; row < args.rows; ++row) {
    const float* qkv = args.qkv + row * (q_width + 2 * kv_width);
    for (std::int32_t head = 0; head < args.num_heads; ++head) {
      const std::int64_t at = std::int64_t{head} * args.head_dim;
      rotate(args, static_cast<float>(args.positions[row]), qkv + at, args.q_out, args.q_dtype,
             row * q_width + at);
    }
    store_kv(args, row, qkv + q_width, qkv + q_width + kv_width);
  }
  return {};
}

}  // namespace nibble::kernels
