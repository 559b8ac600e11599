#include "kernels/sample/row.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "kernels/common/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sample/row.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace nibble::kernels::HWY_NAMESPACE {
namespace {

constexpr std::size_t kLanes = 16;
constexpr std::size_t kBlock = 512;  // a multiple of the lanes

// Of one block: its largest value, and whether it holds a NaN.
struct BlockMaximum {
  float value = -INFINITY;
  bool has_nan = false;
};

BlockMaximum maximum_of(std::span<const float> block) {
  std::array<float, kLanes> largest{};
  std::array<std::int32_t, kLanes> nans{};
  largest.fill(-INFINITY);
  std::size_t i = 0;
  for (; i + kLanes <= block.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float value = block[i + lane];
      largest[lane] = value > largest[lane] ? value : largest[lane];
      nans[lane] |= value != value ? 1 : 0;
    }
  }
  for (; i < block.size(); ++i) {
    largest[0] = block[i] > largest[0] ? block[i] : largest[0];
    nans[0] |= block[i] != block[i] ? 1 : 0;
  }
  BlockMaximum out;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    out.value = std::max(out.value, largest[lane]);
    out.has_nan |= nans[lane] != 0;
  }
  return out;
}

// exp(x) for x <= 0: x = n ln 2 + r with |r| <= ln 2 / 2, the series of r up to its seventh power
// (the rest is below 6e-9), and n added to the exponent. No comparison but the last, no fused
// multiply: the same bits from vectors of any width.
inline float exp_below_zero(float x) {
  constexpr float kLeast = -87.0F;
  constexpr float kRounds = 12582912.0F;    // 1.5 * 2^23: adding it leaves whole numbers
  constexpr float kLn2High = 0.693359375F;  // few bits, so that n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  const float kept = x > kLeast ? x : kLeast;
  const float n = (kept * 1.44269504F + kRounds) - kRounds;
  const float r = (kept - n * kLn2High) - n * kLn2Low;
  float sum = 1.0F / 5040.0F;
  sum = sum * r + 1.0F / 720.0F;
  sum = sum * r + 1.0F / 120.0F;
  sum = sum * r + 1.0F / 24.0F;
  sum = sum * r + 1.0F / 6.0F;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  const auto bits = std::bit_cast<std::int32_t>(sum) + (static_cast<std::int32_t>(n) * (1 << 23));
  const float scaled = std::bit_cast<float>(bits);
  return x < kLeast ? 0.0F : scaled;
}

std::int32_t largest_of(std::span<const float> row) {
  std::size_t best_block = 0;
  float best = -INFINITY;
  for (std::size_t begin = 0; begin < row.size(); begin += kBlock) {
    const BlockMaximum block = maximum_of(row.subspan(begin, std::min(kBlock, row.size() - begin)));
    if (block.has_nan) {
      return -1;
    }
    if (block.value > best) {
      best = block.value;
      best_block = begin;
    }
  }
  if (best == -INFINITY) {
    return -1;
  }
  const auto at = std::find(row.begin() + static_cast<std::ptrdiff_t>(best_block), row.end(), best);
  return static_cast<std::int32_t>(at - row.begin());
}

void weights_of(std::span<const float> row, float largest, float temperature,
                std::span<float> out) {
  const float* const from = row.data();
  float* const to = out.data();
  const std::size_t count = row.size();
  if (temperature == 1.0F) {
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = exp_below_zero(from[i] - largest);
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = exp_below_zero((from[i] - largest) / temperature);
    }
  }
}

double sum_of(std::span<const float> row) {
  std::array<double, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += row[i + lane];
    }
  }
  for (; i < row.size(); ++i) {
    sums[0] += row[i];
  }
  double sum = 0.0;
  for (const double one : sums) {
    sum += one;
  }
  return sum;
}

// Whole blocks are passed by their sums. Within one the sum goes on value by value; should rounding
// keep it from the target that its block reaches, the next block decides.
std::int32_t first_above(std::span<const float> row, double target) {
  double before = 0.0;
  for (std::size_t begin = 0; begin < row.size(); begin += kBlock) {
    const auto block = row.subspan(begin, std::min(kBlock, row.size() - begin));
    const double behind = before + sum_of(block);
    double sum = before;
    for (std::size_t i = 0; behind > target && i < block.size(); ++i) {
      sum += block[i];
      if (block[i] > 0.0F && sum > target) {
        return static_cast<std::int32_t>(begin + i);
      }
    }
    before = behind;
  }
  const auto last =
      std::find_if(row.rbegin(), row.rend(), [](float value) { return value > 0.0F; });
  return last == row.rend() ? 0 : static_cast<std::int32_t>(row.rend() - last) - 1;
}

}  // namespace
}  // namespace nibble::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nibble::kernels {

HWY_EXPORT(largest_of);
HWY_EXPORT(weights_of);
HWY_EXPORT(sum_of);
HWY_EXPORT(first_above);

std::int32_t row_largest(std::span<const float> row) {
  return HWY_DYNAMIC_DISPATCH(largest_of)(row);
}

void row_weights(std::span<const float> row, float largest, float temperature,
                 std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(weights_of)(row, largest, temperature, out);
}

double row_sum(std::span<const float> row) { return HWY_DYNAMIC_DISPATCH(sum_of)(row); }

std::int32_t row_first_above(std::span<const float> row, double target) {
  return HWY_DYNAMIC_DISPATCH(first_above)(row, target);
}

}  // namespace nibble::kernels
#endif  // HWY_ONCE
