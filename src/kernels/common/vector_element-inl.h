// Vectors of float32 from and to memory of float32 or bf16, for the instruction set being compiled.
// Twin of common/element.h.
#if defined(NIBBLE_KERNELS_COMMON_VECTOR_ELEMENT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NIBBLE_KERNELS_COMMON_VECTOR_ELEMENT_INL_H
#undef NIBBLE_KERNELS_COMMON_VECTOR_ELEMENT_INL_H
#else
#define NIBBLE_KERNELS_COMMON_VECTOR_ELEMENT_INL_H
#endif

#include <hwy/highway.h>

#include "formats/bf16.h"

HWY_BEFORE_NAMESPACE();
namespace nibble::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const formats::Bf16* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> dh;
  const auto bits = hn::LoadU(dh, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

template <class D>
HWY_INLINE void store_f32(D d, hn::Vec<D> value, float* to) {
  hn::StoreU(value, d, to);
}

// To nearest even, NaN kept: bit for bit formats::f32_to_bf16.
template <class D>
HWY_INLINE void store_f32([[maybe_unused]] D d, hn::Vec<D> value, formats::Bf16* to) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint16_t, D> dh;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7FFF)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
  const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded);
  const auto half = hn::DemoteTo(dh, hn::BitCast(di, hn::ShiftRight<16>(chosen)));
  hn::StoreU(half, dh, reinterpret_cast<std::uint16_t*>(to));
}

}  // namespace nibble::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // NIBBLE_KERNELS_COMMON_VECTOR_ELEMENT_INL_H
