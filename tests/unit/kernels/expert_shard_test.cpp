#include "kernels/convert/expert_shard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "formats/e2m1.h"
#include "formats/ue8m0.h"

namespace nibble::kernels {
namespace {

constexpr std::int32_t kNumExperts = 2;
constexpr std::int64_t kHidden = 64;

// All tensors of one layer, of a whole or a share.
struct Layer {
  std::int64_t intermediate;
  std::vector<std::uint8_t> gate_up_values, gate_up_scales, down_values, down_scales;
  std::vector<formats::Bf16> gate_up_bias, down_bias;

  Layer(std::int64_t inner, int seed) : intermediate(inner) {
    std::uint32_t state = 77U + static_cast<std::uint32_t>(seed);
    const auto next = [&state] { return (state = state * 1664525U + 1013904223U) >> 16U; };
    const auto fill = [&](std::vector<std::uint8_t>& bytes, std::int64_t count, bool is_scale) {
      bytes.resize(kNumExperts * count);
      for (std::uint8_t& byte : bytes) {
        byte = static_cast<std::uint8_t>(is_scale ? 120 + next() % 8 : next());
      }
    };
    fill(gate_up_values, 2 * inner * kHidden / 2, false);
    fill(gate_up_scales, 2 * inner * kHidden / 32, true);
    fill(down_values, kHidden * inner / 2, false);
    fill(down_scales, kHidden * inner / 32, true);
    const auto fill_bias = [&](std::vector<formats::Bf16>& bias, std::int64_t count) {
      for (std::int64_t i = 0; i < kNumExperts * count; ++i) {
        bias.push_back(formats::f32_to_bf16(static_cast<float>(next() % 64) / 16.0F - 2.0F));
      }
    };
    fill_bias(gate_up_bias, 2 * inner);
    fill_bias(down_bias, kHidden);
  }

  Mxfp4ExpertsIn in() const {
    return {gate_up_values.data(), gate_up_scales.data(), gate_up_bias.data(),
            down_values.data(),    down_scales.data(),    down_bias.data()};
  }
  Mxfp4ExpertsOut out() {
    return {gate_up_values.data(), gate_up_scales.data(), gate_up_bias.data(),
            down_values.data(),    down_scales.data(),    down_bias.data()};
  }
  friend bool operator==(const Layer&, const Layer&) = default;
};

double weight(const std::uint8_t* values, const std::uint8_t* scales, std::int64_t index) {
  const double scale = formats::ue8m0_to_f32(scales[index / 32]);
  return formats::e2m1_to_f32(formats::e2m1_at(values, index)) * scale;
}

// One expert on one row, in double: kernels.md's formula, no code of the engine's.
std::vector<double> expert(const Layer& layer, std::int64_t e, const std::vector<double>& x) {
  const std::int64_t inner = layer.intermediate;
  const auto projected = [&](std::int64_t row) {
    double sum = bf16_to_f32(layer.gate_up_bias[e * 2 * inner + row]);
    for (std::int64_t k = 0; k < kHidden; ++k) {
      const std::int64_t at = (e * 2 * inner + row) * kHidden + k;
      sum += x[k] * weight(layer.gate_up_values.data(), layer.gate_up_scales.data(), at);
    }
    return sum;
  };
  std::vector<double> out(kHidden);
  for (std::int64_t row = 0; row < kHidden; ++row) {
    out[row] = bf16_to_f32(layer.down_bias[e * kHidden + row]);
  }
  for (std::int64_t i = 0; i < inner; ++i) {
    const double gate = std::fmin(projected(2 * i), 7.0);
    const double up = std::fmax(std::fmin(projected(2 * i + 1), 7.0), -7.0);
    const double h = (up + 1) * gate / (1 + std::exp(-1.702 * gate));
    for (std::int64_t row = 0; row < kHidden; ++row) {
      const std::int64_t at = (e * kHidden + row) * inner + i;
      out[row] += h * weight(layer.down_values.data(), layer.down_scales.data(), at);
    }
  }
  return out;
}

TEST(ExpertShard, CutsWholeBlocksAsEvenlyAsTheyGo) {
  struct Want {
    std::int64_t intermediate;
    std::vector<std::int64_t> shares;
  };
  const Want wants[] = {{2880, {1440, 1440}},
                        {2880, {736, 736, 704, 704}},
                        {2880, {384, 384, 352, 352, 352, 352, 352, 352}},
                        {2880, {960, 960, 960}},
                        {96, {32, 32, 32}},
                        {160, {64, 32, 32, 32}}};
  for (const Want& want : wants) {
    std::int64_t begin = 0;
    const auto num_ranks = static_cast<std::int32_t>(want.shares.size());
    for (std::int32_t rank = 0; rank < num_ranks; ++rank) {
      const ExpertShard shard = plan_expert_shard({want.intermediate, num_ranks, rank, 0}).value();
      EXPECT_EQ(shard.intermediate.value, want.shares[rank]);
      EXPECT_EQ(shard.padded.value, want.shares[rank]);
      EXPECT_EQ(shard.first_block * 32, begin);
      EXPECT_EQ(shard.has_down_bias, rank == 0);
      begin += want.shares[rank];
    }
    EXPECT_EQ(begin, want.intermediate);
  }
  EXPECT_EQ(plan_expert_shard({2880, 4, 3, 128}).value().padded.value, 768);
  EXPECT_EQ(plan_expert_shard({2880, 8, 7, 32}).value().padded.value, 384);
}

TEST(ExpertShard, SharesPutTogetherAreTheOriginalBytes) {
  for (const std::int64_t intermediate : {96, 160, 2880}) {
    const Layer whole(intermediate, 1);
    for (const std::int32_t num_ranks : {1, 2, 3, 4, 6, 8}) {
      if (num_ranks > intermediate / 32) {
        continue;
      }
      for (const std::int32_t multiple : {0, 64}) {
        Layer back(intermediate, 2);  // other bytes: whatever is not written shows
        for (std::int32_t rank = 0; rank < num_ranks; ++rank) {
          const ExpertShard shard =
              plan_expert_shard({intermediate, num_ranks, rank, multiple}).value();
          Layer share(shard.padded.value, 3);
          const ExpertSizes sizes = {kNumExperts, kHidden, intermediate};
          ASSERT_TRUE(shard_experts(whole.in(), sizes, shard, share.out()).ok());
          ASSERT_TRUE(unshard_experts(share.in(), sizes, shard, back.out()).ok());
        }
        ASSERT_EQ(back, whole) << intermediate << " over " << num_ranks;
      }
    }
  }
}

TEST(ExpertShard, SumOverRanksIsTheWholeExpert) {
  const std::int64_t intermediate = 160;
  const Layer whole(intermediate, 5);
  std::vector<double> x(kHidden);
  for (std::int64_t k = 0; k < kHidden; ++k) {
    x[k] = std::sin(static_cast<double>(k));
  }
  for (const std::int32_t num_ranks : {2, 3, 4, 5}) {
    for (const std::int32_t multiple : {0, 32, 128}) {
      for (std::int64_t e = 0; e < kNumExperts; ++e) {
        std::vector<double> sum(kHidden, 0.0);
        for (std::int32_t rank = 0; rank < num_ranks; ++rank) {
          const ExpertShard shard =
              plan_expert_shard({intermediate, num_ranks, rank, multiple}).value();
          Layer share(shard.padded.value, 9);
          ASSERT_TRUE(
              shard_experts(whole.in(), {kNumExperts, kHidden, intermediate}, shard, share.out())
                  .ok());
          const std::vector<double> part = expert(share, e, x);
          for (std::int64_t row = 0; row < kHidden; ++row) {
            sum[row] += part[row];
          }
        }
        const std::vector<double> want = expert(whole, e, x);
        for (std::int64_t row = 0; row < kHidden; ++row) {
          // 160 products and 5 sums in double: far below 1e-12 of their size.
          ASSERT_NEAR(sum[row], want[row], 1e-12 * (1 + std::fabs(want[row]))) << num_ranks;
        }
      }
    }
  }
}

TEST(ExpertShard, RefusesWithTheLegalNumbers) {
  EXPECT_EQ(plan_expert_shard({1536, 64, 0, 0}).error().message(),
            "tensor parallel size: want 1 to 48 for 1536 values in blocks of 32, got 64");
  EXPECT_EQ(plan_expert_shard({2890, 2, 0, 0}).error().message(),
            "intermediate size: want a positive multiple of the block of 32, got 2890");
  EXPECT_EQ(plan_expert_shard({2880, 2, 2, 0}).error().message(),
            "tensor parallel rank: want 0 to 1, got 2");
  EXPECT_EQ(plan_expert_shard({2880, 2, 0, 48}).error().message(),
            "padding of a shard: want a multiple of 32 or 0, got 48");
  const ExpertShard shard = plan_expert_shard({2880, 2, 1, 0}).value();
  EXPECT_EQ(shard_experts({}, {1, 64, 1440}, shard, {}).message(),
            "expert shard: want hidden and intermediate in blocks of 32 and values up to 2880, got "
            "hidden 64, intermediate 1440");
}

}  // namespace
}  // namespace nibble::kernels
