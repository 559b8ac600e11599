#include "kernels/rope/rope_store_cpu.h"

#include <cmath>

#include "kernels/common/cache_rows.h"
#include "kernels/common/highway_targets.h"
#include "kernels/common/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope/rope_store_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/common/vector_element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::kernels::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 8>;  // divides head_dim / 2
constexpr std::int32_t kMaxHalf = 256;

std::int32_t lanes() { return static_cast<std::int32_t>(hn::Lanes(Tag())); }

// Of one position, times the concentration.
struct Angles {
  Angles(const RopeStoreArgs& args, std::int32_t position) {
    for (std::int32_t j = 0; j < args.head_dim / 2; ++j) {
      // float32 product, as in the reference model.
      const double angle = static_cast<float>(position) * args.inv_freq[j];
      cosine[j] = static_cast<float>(args.concentration * std::cos(angle));
      sine[j] = static_cast<float>(args.concentration * std::sin(angle));
    }
  }
  HWY_ALIGN float cosine[kMaxHalf];
  HWY_ALIGN float sine[kMaxHalf];
};

template <class T>
void rotate(const Angles& angles, const float* x, std::int32_t half, T* out) {
  const Tag d;
  for (std::int32_t j = 0; j < half; j += lanes()) {
    const auto cosine = hn::Load(d, angles.cosine + j);
    const auto sine = hn::Load(d, angles.sine + j);
    const auto low = hn::LoadU(d, x + j);
    const auto high = hn::LoadU(d, x + half + j);
    store_f32(d, hn::NegMulAdd(high, sine, hn::Mul(low, cosine)), out + j);
    store_f32(d, hn::MulAdd(low, sine, hn::Mul(high, cosine)), out + half + j);
  }
}

template <class T>
void store_kv(const RopeStoreArgs& args, const Angles& angles, std::int64_t slot, const float* k) {
  const Tag d;
  const float* v = k + std::int64_t{args.num_kv_heads} * args.head_dim;
  for (std::int32_t head = 0; head < args.num_kv_heads; ++head) {
    const std::int64_t at = ((slot / args.page_size * args.num_kv_heads + head) * args.page_size +
                             slot % args.page_size) *
                            args.head_dim;
    rotate(angles, k, args.head_dim / 2, static_cast<T*>(args.k_cache) + at);
    for (std::int32_t j = 0; j < args.head_dim; j += lanes()) {
      store_f32(d, hn::LoadU(d, v + j), static_cast<T*>(args.v_cache) + at + j);
    }
    k += args.head_dim;
    v += args.head_dim;
  }
}

// Turned in float32, then each row with its scale.
void store_kv_e4m3(const RopeStoreArgs& args, const Angles& angles, std::int64_t slot,
                   const float* k) {
  HWY_ALIGN float turned[2 * kMaxHalf];
  const auto head_dim = static_cast<std::size_t>(args.head_dim);
  const float* v = k + std::int64_t{args.num_kv_heads} * args.head_dim;
  for (std::int32_t head = 0; head < args.num_kv_heads; ++head) {
    const std::int64_t row = cache_row(slot / args.page_size, args.num_kv_heads, head,
                                       args.page_size, slot % args.page_size);
    rotate(angles, k, args.head_dim / 2, turned);
    store_cache(args.k_cache, args.k_scales, DType::kE4M3, row, {turned, head_dim});
    store_cache(args.v_cache, args.v_scales, DType::kE4M3, row, {v, head_dim});
    k += args.head_dim;
    v += args.head_dim;
  }
}

template <class T>
void rotate_q(const RopeStoreArgs& args, const Angles& angles, std::int64_t row, const float* q) {
  const std::int64_t width = std::int64_t{args.num_heads} * args.head_dim;
  T* out = static_cast<T*>(args.q_out) + row * width;
  for (std::int64_t at = 0; at < width; at += args.head_dim) {
    rotate(angles, q + at, args.head_dim / 2, out + at);
  }
}

void rope_store_rows(const RopeStoreArgs& args, Range rows) {
  const std::int64_t q_width = std::int64_t{args.num_heads} * args.head_dim;
  const std::int64_t kv_width = std::int64_t{args.num_kv_heads} * args.head_dim;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    const Angles angles(args, args.positions[row]);
    const float* qkv = args.qkv + row * (q_width + 2 * kv_width);
    if (args.q_dtype == DType::kF32) {
      rotate_q<float>(args, angles, row, qkv);
    } else {
      rotate_q<formats::Bf16>(args, angles, row, qkv);
    }
    if (args.slots[row] < 0) {
      continue;
    }
    if (args.kv_dtype == DType::kF32) {
      store_kv<float>(args, angles, args.slots[row], qkv + q_width);
    } else if (args.kv_dtype == DType::kE4M3) {
      store_kv_e4m3(args, angles, args.slots[row], qkv + q_width);
    } else {
      store_kv<formats::Bf16>(args, angles, args.slots[row], qkv + q_width);
    }
  }
}

}  // namespace
}  // namespace nibble::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::kernels {

HWY_EXPORT(rope_store_rows);

bool fits_rope_store_cpu(const RopeStoreArgs& args) {
  return args.head_dim % 16 == 0 && args.head_dim <= 512;
}

Status rope_store_cpu(const RopeStoreArgs& args, const Exec& exec) {
  const std::int64_t elems = (args.num_heads + std::int64_t{2} * args.num_kv_heads) * args.head_dim;
  for_rows(exec, args.rows, elems, [&](Range rows) {
    HWY_DYNAMIC_DISPATCH(rope_store_rows)(args, rows);
  });
  return {};
}

}  // namespace nibble::kernels
#endif  // HWY_ONCE
