// Plain loops, compiled for every instruction set: the compiler makes vectors of them.
#include "kernels/moe/int8_groups.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/common/element.h"
#include "kernels/common/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/moe/int8_groups.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace nibble::kernels::HWY_NAMESPACE {

constexpr int kColumns = static_cast<int>(kInt8Block);

void quantize_block(const float* x, std::int64_t lane, Int8Group& group) {
  std::uint32_t bits[kColumns];
  std::memcpy(bits, x, sizeof bits);
  std::uint32_t most_bits = 0;  // as whole numbers, so that NaN is the largest
  for (const std::uint32_t each : bits) {
    most_bits = std::max(most_bits, each & 0x7FFFFFFFU);
  }
  const auto most = std::bit_cast<float>(most_bits);
  const bool is_finite = most_bits < 0x7F800000U;
  const bool is_zero = !is_finite || most < 0x1p-118F;
  const float inverse = is_zero ? 0.0F : 127.0F / most;
  // Beside 1.5 * 2^23 the step of float32 is 1, so that the sum rounds as wanted.
  constexpr float kStepOne = 0x1.8p23F;
  std::int32_t rounded[kColumns];
  for (std::int64_t i = 0; i < kColumns; ++i) {
    const float finite = is_zero ? 0.0F : x[i];
    const float sum = finite * inverse + kStepOne;
    std::memcpy(rounded + i, &sum, sizeof sum);
  }
  std::int8_t parity[2][kColumns / 2];
  std::int32_t total = 0;
  for (std::int64_t i = 0; i < kColumns / 2; ++i) {
    const std::int32_t even = rounded[2 * i] - std::bit_cast<std::int32_t>(kStepOne);
    const std::int32_t odd = rounded[2 * i + 1] - std::bit_cast<std::int32_t>(kStepOne);
    parity[0][i] = static_cast<std::int8_t>(even);
    parity[1][i] = static_cast<std::int8_t>(odd);
    total += even + odd;
  }
  for (std::int64_t set = 0; set < kInt8Sets; ++set) {
    std::memcpy(group.values[set] + 4 * lane, parity[set % 2] + set / 2 * 4, 4);
  }
  group.starts[lane] = -12 * total;
  group.half_scales[lane] = !is_finite ? std::numeric_limits<float>::quiet_NaN()
                            : is_zero  ? 0.0F
                                       : 0.5F * (most / 127.0F);
}

void run_blocks(const float* x, std::int64_t first, std::int64_t count, Int8Group* row) {
  for (std::int64_t block = first; block < first + count; ++block, x += kInt8Block) {
    quantize_block(x, int8_lane(block), row[block / kInt8Lanes]);
  }
}

void run_row(const void* x, DType dtype, std::int64_t cols, Int8Group* row) {
  if (cols % kInt8GroupColumns != 0) {
    row[num_int8_groups(cols) - 1] = {};
  }
  for (std::int64_t col = 0; col < cols; col += kInt8Block) {
    float block[kColumns];
    for (std::int64_t i = 0; i < kColumns; ++i) {
      block[i] = load_element(x, dtype, col + i);
    }
    run_blocks(block, col / kInt8Block, 1, row);
  }
}

}  // namespace nibble::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::kernels {

HWY_EXPORT(run_blocks);
HWY_EXPORT(run_row);

void quantize_blocks(const float* x, std::int64_t first, std::int64_t count, Int8Group* row) {
  HWY_DYNAMIC_DISPATCH(run_blocks)(x, first, count, row);
}
void quantize_row(const void* x, DType dtype, std::int64_t cols, Int8Group* row) {
  HWY_DYNAMIC_DISPATCH(run_row)(x, dtype, cols, row);
}

}  // namespace nibble::kernels
#endif  // HWY_ONCE
