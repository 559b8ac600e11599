// Inner loops with the widest vectors of the processor, chosen at run time. Every step is exact or
// rounded once like its scalar twin, so the bytes are equal.
#include "kernels/quantize/quantize_block.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize/quantize_cpu.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace nibble::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;  // divides the smallest block
using IntTag = hn::RebindToSigned<FloatTag>;
using ByteTag = hn::Rebind<std::uint8_t, FloatTag>;

std::uint32_t max_magnitude_bits(const float* block, std::int32_t elems) {
  const FloatTag df;
  const IntTag di;
  auto most = hn::Zero(di);
  for (std::int32_t i = 0; i < elems; i += static_cast<std::int32_t>(hn::Lanes(df))) {
    most = hn::Max(most, hn::BitCast(di, hn::Abs(hn::Load(df, block + i))));
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(di, most)));
}

// 1 in every lane where `mask` holds, subtracted from: adds without a select.
template <class V, class M>
V count_if(V count, M mask) {
  return hn::Sub(count, hn::BitCast(IntTag(), hn::VecFromMask(FloatTag(), mask)));
}

template <class V>
auto e2m1_codes(V scaled) {
  const FloatTag df;
  const IntTag di;
  const auto magnitude = hn::Abs(scaled);
  auto code = hn::And(hn::ShiftRight<28>(hn::BitCast(di, scaled)), hn::Set(di, 8));
  code = count_if(code, hn::Gt(magnitude, hn::Set(df, 0.25F)));
  code = count_if(code, hn::Ge(magnitude, hn::Set(df, 0.75F)));
  code = count_if(code, hn::Gt(magnitude, hn::Set(df, 1.25F)));
  code = count_if(code, hn::Ge(magnitude, hn::Set(df, 1.75F)));
  code = count_if(code, hn::Gt(magnitude, hn::Set(df, 2.5F)));
  code = count_if(code, hn::Ge(magnitude, hn::Set(df, 3.5F)));
  return count_if(code, hn::Gt(magnitude, hn::Set(df, 5.0F)));
}

template <class V>
auto e4m3_codes(V scaled) {
  const FloatTag df;
  const IntTag di;
  const auto bits = hn::BitCast(di, scaled);
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
  const auto odd = hn::And(hn::ShiftRight<20>(magnitude), hn::Set(di, 1));
  const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(di, 0x7FFFF)), odd);
  const auto normal = hn::Sub(hn::ShiftRight<20>(rounded), hn::Set(di, (127 - 7) << 3));
  // As in f32_to_e4m3: the adder rounds to multiples of 2^-9.
  const auto anchor = hn::Set(df, 0x1p14F);
  const auto subnormal = hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(df, magnitude), anchor)),
                                 hn::BitCast(di, anchor));
  auto code = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x3C800000)), subnormal, normal);
  code = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x43E00000)), code, hn::Set(di, 0x7E));
  return hn::Or(code, hn::And(hn::ShiftRight<24>(bits), hn::Set(di, 0x80)));
}

std::int32_t encode_e2m1(const float* block, std::int32_t elems, float step, std::uint8_t* packed) {
  const FloatTag df;
  const auto divisor = hn::Set(df, step);
  HWY_ALIGN std::uint8_t codes[kMaxBlockElems];
  std::size_t num_saturated = 0;
  for (std::int32_t i = 0; i < elems; i += static_cast<std::int32_t>(hn::Lanes(df))) {
    const auto scaled = hn::Div(hn::Load(df, block + i), divisor);
    hn::Store(hn::DemoteTo(ByteTag(), e2m1_codes(scaled)), ByteTag(), codes + i);
    num_saturated += hn::CountTrue(df, hn::Gt(hn::Abs(scaled), hn::Set(df, 7.0F)));
  }
  const std::uint8_t* pair = codes;
  for (std::int32_t i = 0; i < elems / 2; ++i, pair += 2) {
    packed[i] = static_cast<std::uint8_t>(pair[0] | pair[1] << 4U);
  }
  return static_cast<std::int32_t>(num_saturated);
}

std::int32_t encode_e4m3(const float* block, std::int32_t elems, float step, std::uint8_t* codes) {
  const FloatTag df;
  const auto divisor = hn::Set(df, step);
  std::size_t num_saturated = 0;
  for (std::int32_t i = 0; i < elems; i += static_cast<std::int32_t>(hn::Lanes(df))) {
    const auto scaled = hn::Div(hn::Load(df, block + i), divisor);
    hn::StoreU(hn::DemoteTo(ByteTag(), e4m3_codes(scaled)), ByteTag(), codes + i);
    num_saturated += hn::CountTrue(df, hn::Gt(hn::Abs(scaled), hn::Set(df, 464.0F)));
  }
  return static_cast<std::int32_t>(num_saturated);
}

// A function, because the dispatch table holds functions.
const BlockOps* block_ops() {
  static constexpr BlockOps kOps = {&max_magnitude_bits, &encode_e2m1, &encode_e4m3};
  return &kOps;
}

}  // namespace nibble::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::kernels {

HWY_EXPORT(block_ops);

const BlockOps& cpu_block_ops() { return *HWY_DYNAMIC_DISPATCH(block_ops)(); }

}  // namespace nibble::kernels
#endif  // HWY_ONCE
