#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernel/gpu.h"
#include "kernels/sample/pick_ids.h"
#include "kernels/sample/sample_rows.h"
#include "support/counter_rng.h"

namespace nibble::kernels {
namespace {

using testing_support::CounterRng;
using SampleOnGpu = GpuTest;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One entry of every kind of rule, and all of them together.
struct Rules {
  std::vector<SampleRow> rows;
  std::vector<TokenCount> counts;
  std::vector<LogitBias> bias;
};
Rules every_rule(std::int32_t vocab) {
  Rules out;
  for (std::int32_t i = 0; i < std::min(vocab, 700); i += 3) {
    out.counts.push_back({.id = (i * 7919 + 5) % vocab, .in_output = i % 4});
  }
  std::sort(out.counts.begin(), out.counts.end(),
            [](const TokenCount& a, const TokenCount& b) { return a.id < b.id; });
  out.counts.erase(
      std::unique(out.counts.begin(), out.counts.end(),
                  [](const TokenCount& a, const TokenCount& b) { return a.id == b.id; }),
      out.counts.end());
  out.bias = {
      {0, 2.5F}, {vocab - 1, -1.25F}, {0, 0.3F}, {vocab / 2, -kInfinity}, {vocab / 3, 4.0F}};
  const auto num_counts = static_cast<std::int32_t>(out.counts.size());
  out.rows = {{.temperature = 0.0F},
              {.temperature = 1.0F},
              {.temperature = 0.4F, .top_k = 1},
              {.temperature = 1.5F, .top_k = 40},
              {.top_p = 0.9F},
              {.temperature = 2.0F, .top_p = 0.5F, .top_k = 1000},
              {.min_p = 0.05F},
              {.temperature = 100.0F, .top_p = 0.999F},
              {.temperature = 0.0F, .repetition_penalty = 1.3F, .num_counts = num_counts},
              {.presence_penalty = 0.5F, .frequency_penalty = -0.2F, .num_counts = num_counts},
              {.temperature = 0.0F, .first_bias = 1, .num_bias = 4},
              {.temperature = 0.8F,
               .top_p = 0.95F,
               .min_p = 0.001F,
               .repetition_penalty = 1.1F,
               .presence_penalty = 0.1F,
               .frequency_penalty = 0.2F,
               .top_k = 500,
               .first_count = num_counts / 2,
               .num_counts = num_counts - num_counts / 2,
               .num_bias = 5}};
  return out;
}

// Whether rounding explains `token`: the draw falls within the error of a sum of its border.
// Weights of both sides are within 4 ulp of the exact ones, and so are their sums relative to the
// total.
bool is_within_rounding(std::span<const float> logits, const SampleRow& row, std::int32_t token) {
  constexpr double kError = 16 * 0x1p-24;
  const double top = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights(logits.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = std::exp((double{logits[i]} - top) / row.temperature);
  }
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return weights[static_cast<std::size_t>(a)] > weights[static_cast<std::size_t>(b)];
  });
  std::size_t kept = order.size();
  if (row.top_k > 0) {
    kept = std::min(kept, static_cast<std::size_t>(row.top_k));
  }
  const auto sum_of = [&](std::size_t count) {
    double sum = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += weights[static_cast<std::size_t>(order[i])];
    }
    return sum;
  };
  if (row.top_p < 1.0F) {
    const double wanted = row.top_p * sum_of(kept);
    double sum = 0.0;
    for (std::size_t i = 0; i < kept; ++i) {
      sum += weights[static_cast<std::size_t>(order[i])];
      if (sum >= wanted) {
        kept = i + 1;
      }
    }
  }
  for (std::size_t i = kept; i < order.size(); ++i) {
    weights[static_cast<std::size_t>(order[i])] = 0.0;
  }
  double total = 0.0;
  double before = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = weights[i] >= row.min_p ? weights[i] : 0.0;
    before += static_cast<std::int32_t>(i) < token ? weights[i] : 0.0;
    total += weights[i];
  }
  const double after = before + weights[static_cast<std::size_t>(token)];
  const double target = uniform(row.seed, row.counter) * total;
  return target >= before - kError * total && target <= after + kError * total;
}

std::vector<std::int32_t> on_the_gpu(const Instance<SampleRowsArgs>& instance,
                                     std::span<const float> logits, const Rules& rules,
                                     std::int32_t vocab) {
  const OnGpu logits_gpu(logits);
  const OnGpu rows(rules.rows);
  const OnGpu counts(rules.counts);
  const OnGpu bias(rules.bias);
  OnGpu ids(static_cast<std::int64_t>(rules.rows.size()) * 4);
  const SampleRowsArgs args{.logits = logits_gpu.data<float>(),
                            .rows = rows.data<SampleRow>(),
                            .counts = counts.data<TokenCount>(),
                            .logit_bias = bias.data<LogitBias>(),
                            .ids = ids.data<std::int32_t>(),
                            .num_rows = static_cast<std::int32_t>(rules.rows.size()),
                            .vocab = vocab};
  EXPECT_TRUE(instance.run(args, on_gpu()).ok());
  return ids.values<std::int32_t>();
}

TEST_F(SampleOnGpu, ChoosesTheTokensOfTheHostUpToRounding) {
  for_each_cuda(sample_rows_instances(), [](const Instance<SampleRowsArgs>& instance) {
    int num_draws = 0;
    int num_different = 0;
    for (const std::int32_t vocab : {1, 2, 33, 4095, 4096, 4097, 50257, 201088}) {
      Rules rules = every_rule(vocab);
      const std::size_t kinds = rules.rows.size();
      while (rules.rows.size() < kinds * 12) {  // the same rules, other draws
        rules.rows.push_back(rules.rows[rules.rows.size() - kinds]);
        rules.rows.back().counter += 1;
        rules.rows.back().seed = rules.rows.size();
      }
      std::vector<float> logits =
          CounterRng(static_cast<std::uint64_t>(vocab))
              .normals(static_cast<std::int64_t>(rules.rows.size()) * vocab);
      for (float& logit : logits) {
        logit *= 2.0F;
      }
      const std::vector<std::int32_t> have = on_the_gpu(instance, logits, rules, vocab);
      std::vector<std::int32_t> want(rules.rows.size());
      ASSERT_TRUE(sample_rows_ref({.logits = logits.data(),
                                   .rows = rules.rows.data(),
                                   .counts = rules.counts.data(),
                                   .logit_bias = rules.bias.data(),
                                   .ids = want.data(),
                                   .num_rows = static_cast<std::int32_t>(want.size()),
                                   .vocab = vocab})
                      .ok());
      for (std::size_t i = 0; i < want.size(); ++i) {
        ++num_draws;
        const SampleRow& row = rules.rows[i];
        if (have[i] != want[i]) {
          ++num_different;
          const bool is_plain = row.num_counts == 0 && row.num_bias == 0;
          EXPECT_TRUE(row.temperature > 0.0F && is_plain && have[i] >= 0 &&
                      is_within_rounding(std::span(logits).subspan(i * vocab, vocab), row, have[i]))
              << vocab << " row " << i % kinds << ": " << have[i] << ", want " << want[i];
        }
      }
    }
    RecordProperty("draws", num_draws);
    RecordProperty("different", num_different);
    EXPECT_LE(num_different * 100, num_draws);
  });
}

TEST_F(SampleOnGpu, TiesAndEdgesAreThoseOfTheHost) {
  for_each_cuda(sample_rows_instances(), [](const Instance<SampleRowsArgs>& instance) {
    const std::vector<std::vector<float>> rows = {
        {5, 5, 5, 5, 5, 5, 5, 5, 5},
        {1, 3, 3, 2, 3, 3, 0, 0, 0},
        {-kInfinity, -kInfinity, 0, 0, 0, -kInfinity, 0, 0, -kInfinity}};
    for (const std::vector<float>& logits : rows) {
      for (const std::int32_t top_k : {0, 1, 3, 9}) {
        for (const float top_p : {1.0F, 0.5F, 0.500001F, 0.0F}) {
          Rules rules;
          for (std::uint64_t counter = 0; counter < 12; ++counter) {
            rules.rows.push_back({.counter = counter, .top_p = top_p, .top_k = top_k});
          }
          rules.rows.push_back({.temperature = 0.0F});
          std::vector<float> all;
          for (std::size_t i = 0; i < rules.rows.size(); ++i) {
            all.insert(all.end(), logits.begin(), logits.end());
          }
          std::vector<std::int32_t> want(rules.rows.size());
          ASSERT_TRUE(sample_rows_ref({.logits = all.data(),
                                       .rows = rules.rows.data(),
                                       .ids = want.data(),
                                       .num_rows = static_cast<std::int32_t>(want.size()),
                                       .vocab = 9})
                          .ok());
          EXPECT_EQ(on_the_gpu(instance, all, rules, 9), want) << top_k << ' ' << top_p;
        }
      }
    }
  });
}

TEST_F(SampleOnGpu, BrokenRowsHaveNoTokenAndLeaveTheOthersAlone) {
  for_each_cuda(sample_rows_instances(), [](const Instance<SampleRowsArgs>& instance) {
    constexpr std::int32_t kVocab = 5000;
    std::vector<float> logits(5 * std::size_t{kVocab}, -1.0F);
    logits[7] = 3.0F;
    logits[kVocab + 4999] = std::nanf("");
    logits[2 * kVocab + 1234] = kInfinity;
    std::fill_n(logits.begin() + 3 * kVocab, kVocab, -kInfinity);
    logits[4 * kVocab + 4998] = 0.0F;
    Rules rules;
    rules.rows.assign(5, {.temperature = 0.0F});
    EXPECT_EQ(on_the_gpu(instance, logits, rules, kVocab),
              (std::vector<std::int32_t>{7, -1, -1, -1, 4998}));
    for (SampleRow& row : rules.rows) {
      row.temperature = 1.0F;
    }
    const auto drawn = on_the_gpu(instance, logits, rules, kVocab);
    EXPECT_GE(drawn[0], 0);
    EXPECT_EQ(drawn[1], -1);
    EXPECT_EQ(drawn[2], -1);
    EXPECT_EQ(drawn[3], -1);
    EXPECT_GE(drawn[4], 0);
  });
}

TEST_F(SampleOnGpu, GivesTheSameTokensEveryTime) {
  for_each_cuda(sample_rows_instances(), [](const Instance<SampleRowsArgs>& instance) {
    constexpr std::int32_t kVocab = 50257;
    const Rules rules = every_rule(kVocab);
    const auto num_rows = static_cast<std::int32_t>(rules.rows.size());
    const OnGpu logits(CounterRng(3).normals(std::int64_t{num_rows} * kVocab));
    const OnGpu rows(rules.rows);
    const OnGpu counts(rules.counts);
    const OnGpu bias(rules.bias);
    OnGpu ids(num_rows * 4);
    expect_same_bits_every_time(ids, [&] {
      ASSERT_TRUE(instance
                      .run({.logits = logits.data<float>(),
                            .rows = rows.data<SampleRow>(),
                            .counts = counts.data<TokenCount>(),
                            .logit_bias = bias.data<LogitBias>(),
                            .ids = ids.data<std::int32_t>(),
                            .num_rows = num_rows,
                            .vocab = kVocab},
                           on_gpu())
                      .ok());
    });
  });
}

TEST_F(SampleOnGpu, PicksIdsThatTheHostDoesNotKnow) {
  for_each_cuda(pick_ids_instances(), [](const Instance<PickIdsArgs>& instance) {
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < 700; ++i) {
      ids.push_back(i % 3 == 0 ? -1 - i % 5 : i);
    }
    const std::vector<std::int32_t> sampled = {100, 200, -1, 400};
    const OnGpu ids_gpu(ids);
    const OnGpu sampled_gpu(sampled);
    ASSERT_TRUE(instance
                    .run({.ids = ids_gpu.data<std::int32_t>(),
                          .sampled = sampled_gpu.data<std::int32_t>(),
                          .count = 700,
                          .num_sampled = 4},
                         on_gpu())
                    .ok());
    ASSERT_TRUE(
        pick_ids_ref({.ids = ids.data(), .sampled = sampled.data(), .count = 700, .num_sampled = 4})
            .ok());
    EXPECT_EQ(ids_gpu.values<std::int32_t>(), ids);
  });
}

}  // namespace
}  // namespace nibble::kernels
