// The forward passes of one bench test, and what they cost by the shapes: no clock, no weights.
#pragma once

#include <cstdint>
#include <vector>

#include "api/commands/bench.h"
#include "api/commands/doctor.h"
#include "model/batch_plan.h"
#include "model/config.h"

namespace nibble::commands {

// Consecutive tokens of one stream.
struct StepSlice {
  std::int32_t stream = 0;
  std::int32_t position = 0;  // of the first
  std::int32_t rows = 0;
  bool wants_logits = false;  // of the last
};
using BenchStep = std::vector<StepSlice>;  // streams differ

// What is not timed: the cache up to the depth.
std::vector<BenchStep> depth_steps(const BenchTest& test);
// What is: prompts of the streams one after the other, then one token of every stream a time.
std::vector<BenchStep> timed_steps(const BenchTest& test);

// Pages of a cache that holds the test. Window layers keep a ring: what the first timed step looks
// back at is still there after the last one, so that each repetition finds the same cache.
struct BenchPages {
  std::int32_t page_size = 64;
  std::int32_t per_stream[model::kNumCacheGroups] = {0, 0};
};
BenchPages pages_for(const BenchTest& test, std::int32_t window);

// Fills `plan` with the step; ids come from `ids`, which is used in a circle.
void fill_plan(const BenchStep& step, const BenchPages& pages, const std::vector<std::int32_t>& ids,
               model::BatchPlan& plan);

// Expected number of different experts that `rows` rows use, each choosing `top_k` of
// `num_experts` independently and evenly: E (1 - (1 - k / E)^rows).
double expected_experts(std::int32_t num_experts, std::int32_t top_k, std::int64_t rows);

struct BenchCost {
  double bytes = 0.0;  // read at least: weights in use once a step, keys and values once a sequence
  double flops = 0.0;  // products and attention
};
// `kv_bytes`: of one cached number, its part of a scale included.
BenchCost cost_of(const std::vector<BenchStep>& steps, const model::ModelConfig& config,
                  const TokenCost& token, double kv_bytes);

}  // namespace nibble::commands
