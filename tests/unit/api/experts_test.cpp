// The public expert products against a plain loop in double over values decoded by hand.
#include "nibble/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace nibble {
namespace {

using ::testing::HasSubstr;

constexpr std::int32_t kExperts = 3;
constexpr std::int32_t kHidden = 64;
constexpr std::int32_t kIntermediate = 96;

std::uint32_t draw(std::uint32_t& state) {
  state = state * 1664525U + 1013904223U;
  return state >> 8U;
}

struct Layer {
  std::vector<std::uint8_t> gate_up_blocks, gate_up_scales, down_blocks, down_scales;
  std::vector<std::uint16_t> gate_up_bias, down_bias;

  Layer() {
    std::uint32_t state = 7;
    const auto fill = [&](std::vector<std::uint8_t>& bytes, std::size_t count) {
      bytes.resize(count);
      std::generate(bytes.begin(), bytes.end(), [&] { return draw(state) & 0xFFU; });
    };
    fill(gate_up_blocks, kExperts * 2 * kIntermediate * kHidden / 2);
    fill(down_blocks, kExperts * kHidden * kIntermediate / 2);
    gate_up_scales.resize(kExperts * 2 * kIntermediate * kHidden / 32);
    down_scales.resize(kExperts * kHidden * kIntermediate / 32);
    for (auto* scales : {&gate_up_scales, &down_scales}) {
      std::generate(scales->begin(), scales->end(),
                    [&] { return static_cast<std::uint8_t>(122 + draw(state) % 4); });
    }
    gate_up_bias.resize(kExperts * 2 * kIntermediate);
    down_bias.resize(kExperts * kHidden);
    for (auto* bias : {&gate_up_bias, &down_bias}) {
      std::generate(bias->begin(), bias->end(), [&] {
        return static_cast<std::uint16_t>(0x3E00U + draw(state) % 256);  // 0.125 .. 0.5
      });
    }
  }

  Mxfp4Experts view() const {
    Mxfp4Experts weights;
    weights.gate_up_blocks = gate_up_blocks.data();
    weights.gate_up_scales = gate_up_scales.data();
    weights.gate_up_bias = gate_up_bias.data();
    weights.down_blocks = down_blocks.data();
    weights.down_scales = down_scales.data();
    weights.down_bias = down_bias.data();
    weights.num_experts = kExperts;
    weights.hidden = kHidden;
    weights.intermediate = kIntermediate;
    return weights;
  }
};

double bf16_value(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16U;
  float value = 0.0F;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

// sum_k w[row, k] * x[k] + bias[row], and the sum of magnitudes.
struct Sum {
  double value = 0.0;
  double magnitude = 0.0;
};
Sum product(const std::vector<std::uint8_t>& blocks, const std::vector<std::uint8_t>& scales,
            std::size_t row, const std::vector<double>& x, double bias) {
  static const double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  Sum sum{bias, std::abs(bias)};
  for (std::size_t k = 0; k < x.size(); ++k) {
    const std::uint8_t byte = blocks[(row * x.size() + k) / 2];
    const std::uint8_t code = k % 2 == 0 ? byte & 0xFU : byte >> 4U;
    const double scale = std::ldexp(1.0, scales[(row * x.size() + k) / 32] - 127);
    const double term = (code >= 8 ? -1.0 : 1.0) * kValues[code % 8] * scale * x[k];
    sum.value += term;
    sum.magnitude += std::abs(term);
  }
  return sum;
}

// One expert in double, and the bound of a float32 computation of it.
void expert(const Layer& layer, std::int32_t e, const std::vector<double>& x, double weight,
            std::vector<double>& out, std::vector<double>& bound) {
  // Sums of n float32 products: at most (n + 2) * 2^-24 of the magnitudes; one more for the bias.
  const double unit = 0x1p-24;
  std::vector<double> h(kIntermediate);
  std::vector<double> h_error(kIntermediate);
  for (std::int32_t i = 0; i < kIntermediate; ++i) {
    Sum u[2];
    for (int half = 0; half < 2; ++half) {
      const std::size_t row = (std::size_t{2} * kIntermediate * e) + 2 * i + half;
      u[half] = product(layer.gate_up_blocks, layer.gate_up_scales, row, x,
                        bf16_value(layer.gate_up_bias[row]));
    }
    const double gate = std::min(u[0].value, 7.0);
    const double up = std::clamp(u[1].value, -7.0, 7.0);
    h[i] = (up + 1) * gate / (1 + std::exp(-1.702 * gate));
    // |d h / d gate| <= 8 * 1.2, |d h / d up| <= 7; the activation itself: 16 roundings.
    const double error = (kHidden + 3) * unit;
    h_error[i] =
        9.6 * error * u[0].magnitude + 7 * error * u[1].magnitude + 16 * unit * std::abs(h[i]);
  }
  for (std::int32_t n = 0; n < kHidden; ++n) {
    const std::size_t row = std::size_t{kHidden} * e + n;
    const Sum y =
        product(layer.down_blocks, layer.down_scales, row, h, bf16_value(layer.down_bias[row]));
    std::vector<double> magnitudes = h_error;
    // 6 * 2^-2 is the largest weight here.
    double carried = 0.0;
    for (const double error : magnitudes) {
      carried += 1.5 * error;
    }
    out[n] += weight * y.value;
    bound[n] += std::abs(weight) * (carried + (kIntermediate + 4) * unit * y.magnitude);
  }
}

class ExpertsApi : public ::testing::TestWithParam<bool> {
 protected:
  ExpertsApi() {
    std::uint32_t state = 3;
    x_.resize(kTokens * kHidden);
    std::generate(x_.begin(), x_.end(),
                  [&] { return static_cast<float>(draw(state) % 4096) / 2048.0F - 1.0F; });
  }
  Experts make(ExpertsOptions options = {}) {
    options.num_threads = 2;
    options.use_reference_kernels = GetParam();
    return Experts::create(layer_.view(), options).value();
  }

  static constexpr std::int32_t kTokens = 5;
  Layer layer_;
  std::vector<float> x_;
  const std::vector<std::int32_t> ids_ = {0, 1, 2, 0, 1, -1, -1, -1, -1, 2};
  const std::vector<float> weights_ = {0.75F, 0.25F, 0.5F, 0.5F, 1.0F, 9.0F, 1, 1, 9.0F, 0.5F};
};

TEST_P(ExpertsApi, AgreeWithALoopInDoubleAndLeaveOutAbsentExperts) {
  Experts experts = make();
  std::vector<float> out(kTokens * kHidden, std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE(
      experts.forward(x_.data(), ids_.data(), weights_.data(), kTokens, 2, out.data()).ok());
  for (std::int32_t t = 0; t < kTokens; ++t) {
    const std::vector<double> x(x_.begin() + t * kHidden, x_.begin() + (t + 1) * kHidden);
    std::vector<double> want(kHidden, 0.0);
    std::vector<double> bound(kHidden, 0.0);
    for (std::int32_t slot = 0; slot < 2; ++slot) {
      if (ids_[t * 2 + slot] >= 0) {
        expert(layer_, ids_[t * 2 + slot], x, weights_[t * 2 + slot], want, bound);
      }
    }
    for (std::int32_t n = 0; n < kHidden; ++n) {
      EXPECT_LE(std::abs(out[t * kHidden + n] - want[n]), bound[n]) << t << ' ' << n;
    }
  }
  // No local expert: exactly zero, whatever `out` held.
  EXPECT_TRUE(std::all_of(out.begin() + 3 * kHidden, out.begin() + 4 * kHidden,
                          [](float value) { return value == 0.0F; }));
}

TEST_P(ExpertsApi, ATokensBitsDoNotDependOnBatchPassesOrAbsentNeighbours) {
  Experts whole = make();
  std::vector<float> want(kTokens * kHidden);
  ASSERT_TRUE(whole.forward(x_.data(), ids_.data(), weights_.data(), kTokens, 2, want.data()).ok());
  Experts small = make({.max_tokens = 1});
  std::vector<float> have(kTokens * kHidden);
  ASSERT_TRUE(small.forward(x_.data(), ids_.data(), weights_.data(), kTokens, 2, have.data()).ok());
  EXPECT_EQ(want, have);
  ASSERT_TRUE(whole.forward(x_.data(), ids_.data(), weights_.data(), 2, 2, have.data()).ok());
  EXPECT_TRUE(std::equal(have.begin(), have.begin() + 2 * kHidden, want.begin()));
}

// An absent slot must not be an expert weighed by zero: here every expert overflows.
TEST_P(ExpertsApi, AbsentSlotsDoNotSpreadInfinities) {
  std::fill(layer_.down_scales.begin(), layer_.down_scales.end(), 254);
  Experts experts = make();
  const std::int32_t ids[] = {-1, -1};
  const float weights[] = {0, 0};
  std::vector<float> out(kHidden, std::numeric_limits<float>::infinity());
  ASSERT_TRUE(experts.forward(x_.data(), ids, weights, 1, 2, out.data()).ok());
  EXPECT_THAT(out, ::testing::Each(0.0F));
}

TEST_P(ExpertsApi, RefusesWhatItCannotDo) {
  Experts experts = make({.max_top_k = 2});
  std::vector<float> out(kHidden);
  const std::int32_t ids[] = {0, 3};
  EXPECT_THAT(experts.forward(x_.data(), ids, weights_.data(), 1, 2, out.data()).message(),
              HasSubstr("id 3 of token 0, slot 1 is outside -1..2"));
  EXPECT_THAT(experts.forward(x_.data(), ids, weights_.data(), 1, 3, out.data()).message(),
              HasSubstr("top_k in 1..2, got 1 and 3"));
  EXPECT_EQ(experts.forward(nullptr, ids, weights_.data(), 1, 1, out.data()).code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(experts.forward(nullptr, nullptr, nullptr, 0, 1, nullptr).ok());
  Mxfp4Experts odd = layer_.view();
  odd.hidden = 65;
  EXPECT_THAT(Experts::create(odd).error().message(), HasSubstr("hidden 65"));
  odd = layer_.view();
  odd.down_scales = nullptr;
  EXPECT_EQ(Experts::create(odd).error().code(), Code::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Kernels, ExpertsApi, ::testing::Bool(),
                         [](const auto& chosen) { return chosen.param ? "Reference" : "Cpu"; });

}  // namespace
}  // namespace nibble
