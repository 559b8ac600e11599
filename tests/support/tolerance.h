// Error bounds of kernel results, computed from formats, depth and operand norms.
// docs/numerics.md derives each.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "tensor/dtype.h"

namespace nibble::testing_support {

inline constexpr double kUnitF32 = 0x1p-24;  // half the distance from 1 to the next float32
inline constexpr double kUnitBf16 = 0x1p-8;
inline constexpr double kTinyF32 = 0x1p-126;  // least normal: where dot instructions flush

constexpr double unit_of(DType dtype) { return dtype == DType::kBF16 ? kUnitBf16 : kUnitF32; }

// Of one value: what no order of summation exceeds, and what roundings that do not conspire reach.
struct ErrorBound {
  double hard = 0.0;
  double likely = 0.0;

  ErrorBound operator+(const ErrorBound& other) const {
    return {hard + other.hard, likely + other.likely};
  }
  ErrorBound operator*(double factor) const {
    return {hard * std::abs(factor), likely * std::abs(factor)};
  }
};

// Both bounds of `relative` roundings at a value of this magnitude.
inline ErrorBound roundings(double count, double magnitude) {
  return {count * kUnitF32 * magnitude, count * kUnitF32 * magnitude};
}

// An fp32 sum of `terms` products in any order; `magnitude` is the sum of their absolute values.
inline ErrorBound sum_error(std::int64_t terms, double magnitude) {
  const double n = static_cast<double>(terms);
  const double gamma = n * kUnitF32 / (1.0 - n * kUnitF32);
  const double flushed = n * kTinyF32;
  return {gamma * magnitude + flushed, std::sqrt(n) * kUnitF32 * magnitude + flushed};
}

// `error` before, then rounded once to `dtype`.
inline ErrorBound rounded(DType dtype, double value, const ErrorBound& error) {
  const double tiny = 0x1p-149;
  const double rounding = unit_of(dtype) * (std::abs(value) + error.hard) + tiny;
  return error + ErrorBound{rounding, rounding};
}

// NaN and Inf in the same places, each element within its hard bound, and the whole, as a norm,
// within the likely ones.
inline void expect_close(std::span<const float> have, std::span<const float> want,
                         std::span<const ErrorBound> bounds, const std::string& what) {
  ASSERT_EQ(have.size(), want.size()) << what;
  ASSERT_EQ(have.size(), bounds.size()) << what;
  double worst = 0.0;
  std::size_t worst_at = 0;
  double sum_errors = 0.0;
  double sum_bounds = 0.0;
  for (std::size_t i = 0; i < have.size(); ++i) {
    if (!std::isfinite(want[i]) || !std::isfinite(have[i])) {
      const bool is_same = std::isnan(want[i]) ? std::isnan(have[i]) : have[i] == want[i];
      ASSERT_TRUE(is_same) << what << ": element " << i << " is " << have[i] << ", want "
                           << want[i];
      continue;
    }
    const double error = std::abs(double{have[i]} - want[i]);
    const double ratio = error == 0.0 ? 0.0 : error / bounds[i].hard;
    if (ratio > worst) {
      worst = ratio;
      worst_at = i;
    }
    sum_errors += error * error;
    sum_bounds += bounds[i].likely * bounds[i].likely;
  }
  if (have.empty()) {
    return;
  }
  EXPECT_LE(worst, 1.0) << what << ": element " << worst_at << " is " << have[worst_at] << ", want "
                        << want[worst_at] << " within " << bounds[worst_at].hard;
  EXPECT_LE(std::sqrt(sum_errors), std::sqrt(sum_bounds))
      << what << ": the whole; worst element " << worst_at << " is " << have[worst_at] << ", want "
      << want[worst_at];
}

}  // namespace nibble::testing_support
