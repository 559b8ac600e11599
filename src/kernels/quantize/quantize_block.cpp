#include "kernels/quantize/quantize_block.h"

#include <bit>
#include <cmath>

#include "base/thread_pool.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/nvfp4.h"
#include "formats/ue8m0.h"

namespace nibble::kernels {
namespace {

using formats::ScaleRounding;

std::uint32_t max_magnitude_bits(const float* block, std::int32_t elems) {
  std::uint32_t most = 0;
  for (std::int32_t i = 0; i < elems; ++i) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(block[i]) & 0x7FFFFFFFU;
    most = magnitude > most ? magnitude : most;
  }
  return most;
}

std::int32_t encode_e2m1(const float* block, std::int32_t elems, float step, std::uint8_t* packed) {
  std::int32_t num_saturated = 0;
  for (std::int32_t i = 0; i < elems; i += 2) {
    const float even = block[i] / step;
    const float odd = block[i + 1] / step;
    packed[i / 2] = formats::e2m1_pack(formats::f32_to_e2m1(even), formats::f32_to_e2m1(odd));
    num_saturated += (std::fabs(even) > 7.0F ? 1 : 0) + (std::fabs(odd) > 7.0F ? 1 : 0);
  }
  return num_saturated;
}

std::int32_t encode_e4m3(const float* block, std::int32_t elems, float step, std::uint8_t* codes) {
  std::int32_t num_saturated = 0;
  for (std::int32_t i = 0; i < elems; ++i) {
    const float scaled = block[i] / step;
    codes[i] = formats::f32_to_e4m3(scaled);
    num_saturated += std::fabs(scaled) > 464.0F ? 1 : 0;
  }
  return num_saturated;
}

float nearest_element(QuantFormat format, float scaled) {
  return format == QuantFormat::kMxfp8 ? formats::e4m3_to_f32(formats::f32_to_e4m3(scaled))
                                       : formats::e2m1_to_f32(formats::f32_to_e2m1(scaled));
}

// The product of element and step has at most 28 significant bits: exact in double.
double squared_error(QuantFormat format, const float* block, float step) {
  double sum = 0.0;
  for (std::int32_t i = 0; i < block_elems(format); ++i) {
    const float scaled = step == 0.0F ? 0.0F : block[i] / step;
    const double element = nearest_element(format, scaled);
    const double error = static_cast<double>(block[i]) - element * static_cast<double>(step);
    sum += error * error;
  }
  return sum;
}

BlockScale mx_block_scale(const BlockRule& rule, const float* block, float amax) {
  const formats::ElementRange range =
      rule.format == QuantFormat::kMxfp8 ? formats::kE4m3Range : formats::kE2m1Range;
  std::uint8_t code = formats::mx_scale(amax, range, rule.rounding != ScaleRounding::kOcpFloor);
  if (rule.rounding == ScaleRounding::kLeastError && code > 0) {
    const double up = squared_error(rule.format, block, formats::ue8m0_to_f32(code));
    const auto half = static_cast<std::uint8_t>(code - 1);
    code = squared_error(rule.format, block, formats::ue8m0_to_f32(half)) < up ? half : code;
  }
  return {code, formats::ue8m0_to_f32(code)};
}

BlockScale nvfp4_block_scale(const BlockRule& rule, const float* block, float amax) {
  const auto with_step = [&rule](std::uint8_t code) {
    return BlockScale{code, formats::nvfp4_step(code, rule.global)};
  };
  const float ratio = amax / (6.0F * rule.global);
  if (rule.rounding == ScaleRounding::kUp) {
    return with_step(formats::f32_to_e4m3_up(ratio));
  }
  const BlockScale onto_6 = with_step(formats::f32_to_e4m3(ratio));
  if (rule.rounding == ScaleRounding::kNearestEven) {
    return onto_6;
  }
  const BlockScale onto_4 = with_step(formats::f32_to_e4m3(amax / (4.0F * rule.global)));
  const bool is_4_better = squared_error(rule.format, block, onto_4.step) <
                           squared_error(rule.format, block, onto_6.step);
  return is_4_better ? onto_4 : onto_6;
}

}  // namespace

const BlockOps& scalar_block_ops() {
  static constexpr BlockOps kOps = {&max_magnitude_bits, &encode_e2m1, &encode_e4m3};
  return kOps;
}

BlockScale choose_scale(const BlockRule& rule, const float* block, float amax) {
  return rule.format == QuantFormat::kNvfp4 ? nvfp4_block_scale(rule, block, amax)
                                            : mx_block_scale(rule, block, amax);
}

float block_step(QuantFormat format, std::uint8_t scale, float global) {
  return format == QuantFormat::kNvfp4 ? formats::nvfp4_step(scale, global)
                                       : formats::ue8m0_to_f32(scale);
}

}  // namespace nibble::kernels
