#include "api/commands/bench_steps.h"

#include <algorithm>
#include <cmath>

namespace nibble::commands {
namespace {

// Collects slices into steps of limited rows.
class StepCutter {
 public:
  explicit StepCutter(const BenchTest& test) : batch_(test.n_batch), ubatch_(test.n_ubatch) {}

  void add(StepSlice slice) {
    while (slice.rows > 0) {
      const std::int32_t room = std::min(ubatch_ - step_rows_, batch_ - batch_rows_);
      StepSlice part = slice;
      part.rows = std::min(slice.rows, room);
      part.wants_logits = slice.wants_logits && part.rows == slice.rows;
      step_.push_back(part);
      step_rows_ += part.rows;
      batch_rows_ += part.rows;
      slice.position += part.rows;
      slice.rows -= part.rows;
      if (step_rows_ == ubatch_ || batch_rows_ == batch_) {
        end_step();
      }
    }
  }
  // What comes next depends on what is there, so it needs a step, and a batch, of its own.
  void end_batch() {
    end_step();
    batch_rows_ = 0;
  }
  std::vector<BenchStep> take() {
    end_batch();
    return std::move(steps_);
  }

 private:
  void end_step() {
    if (step_rows_ > 0) {
      steps_.push_back(std::move(step_));
      step_.clear();
      step_rows_ = 0;
    }
    if (batch_rows_ == batch_) {
      batch_rows_ = 0;
    }
  }

  std::int32_t batch_;
  std::int32_t ubatch_;
  std::int32_t batch_rows_ = 0;
  std::int32_t step_rows_ = 0;
  BenchStep step_;
  std::vector<BenchStep> steps_;
};

std::int32_t pages_of(std::int64_t tokens, std::int32_t page_size) {
  return static_cast<std::int32_t>((tokens + page_size - 1) / page_size);
}

// Keys that the rows of a slice look at, each counted once.
std::int64_t keys_read(const StepSlice& slice, std::int32_t window) {
  const std::int64_t all = std::int64_t{slice.position} + slice.rows;
  return window == 0 ? all : std::min<std::int64_t>(all, std::int64_t{window} + slice.rows - 1);
}

// Pairs of a row and a key that it looks at: row i sees position + i + 1 of them, or the window.
std::int64_t pairs(const StepSlice& slice, std::int32_t window) {
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < slice.rows; ++row) {
    const std::int64_t keys = slice.position + row + 1;
    count += window == 0 ? keys : std::min<std::int64_t>(keys, window);
  }
  return count;
}

void add_attention(const StepSlice& slice, const model::ModelConfig& config, double kv_bytes,
                   BenchCost& cost) {
  const auto windows =
      std::count(config.is_window_layer.begin(), config.is_window_layer.end(), true);
  const double layers[] = {static_cast<double>(config.num_layers - windows),
                           static_cast<double>(windows)};
  const std::int32_t looks_back[] = {0, config.window};
  const double key_and_value = 2.0 * config.num_kv_heads * config.head_dim * kv_bytes;
  const double pair = 4.0 * config.num_heads * config.head_dim;  // score and sum
  for (int group = 0; group < 2; ++group) {
    cost.bytes +=
        layers[group] * key_and_value * static_cast<double>(keys_read(slice, looks_back[group]));
    cost.flops += layers[group] * pair * static_cast<double>(pairs(slice, looks_back[group]));
  }
}

}  // namespace

std::vector<BenchStep> depth_steps(const BenchTest& test) {
  StepCutter cutter(test);
  for (std::int32_t stream = 0; stream < test.streams; ++stream) {
    cutter.add({.stream = stream, .rows = test.n_depth});
  }
  return cutter.take();
}

std::vector<BenchStep> timed_steps(const BenchTest& test) {
  StepCutter cutter(test);
  for (std::int32_t stream = 0; stream < test.streams; ++stream) {
    cutter.add({stream, test.n_depth, test.n_prompt, true});
  }
  for (std::int32_t token = 0; token < test.n_gen; ++token) {
    cutter.end_batch();
    for (std::int32_t stream = 0; stream < test.streams; ++stream) {
      cutter.add({stream, test.n_depth + test.n_prompt + token, 1, true});
    }
  }
  return cutter.take();
}

BenchPages pages_for(const BenchTest& test, std::int32_t window) {
  BenchPages pages;
  const std::int64_t timed = std::int64_t{test.n_prompt} + test.n_gen;
  const std::int64_t ring = window + std::max<std::int64_t>(timed, test.n_ubatch);
  const std::int32_t full = pages_of(test.n_depth + timed, pages.page_size);
  pages.per_stream[static_cast<int>(model::CacheGroup::kFull)] = full;
  // One more page: the oldest key and the newest need not lie at the edges of theirs.
  pages.per_stream[static_cast<int>(model::CacheGroup::kWindow)] =
      std::min(full, pages_of(ring, pages.page_size) + 1);
  return pages;
}

void fill_plan(const BenchStep& step, const BenchPages& pages, const std::vector<std::int32_t>& ids,
               model::BatchPlan& plan) {
  plan.token_ids.clear();
  plan.sequences.resize(step.size());
  plan.logit_rows.clear();
  plan.page_size = pages.page_size;
  for (std::size_t index = 0; index < step.size(); ++index) {
    const StepSlice& slice = step[index];
    model::SequencePlan& sequence = plan.sequences[index];
    sequence.first_row = plan.num_tokens();
    sequence.num_rows = slice.rows;
    sequence.first_position = slice.position;
    for (std::int32_t row = 0; row < slice.rows; ++row) {
      // Streams differ, or all of them would choose the same experts.
      const auto at = static_cast<std::size_t>(slice.position + row) +
                      static_cast<std::size_t>(slice.stream) * 7919;
      plan.token_ids.push_back(ids[at % ids.size()]);
    }
    const std::int32_t end = pages_of(slice.position + slice.rows, pages.page_size);
    for (int group = 0; group < model::kNumCacheGroups; ++group) {
      const std::int32_t ring = pages.per_stream[group];
      model::PageTable& table = sequence.tables[group];
      table.first_page = std::max(0, end - ring);
      table.pages.clear();
      for (std::int32_t page = table.first_page; page < end; ++page) {
        table.pages.push_back(slice.stream * ring + page % ring);
      }
    }
    if (slice.wants_logits) {
      plan.logit_rows.push_back(plan.num_tokens() - 1);
    }
  }
}

double expected_experts(std::int32_t num_experts, std::int32_t top_k, std::int64_t rows) {
  const double unused = 1.0 - static_cast<double>(top_k) / num_experts;
  return num_experts * (1.0 - std::pow(unused, static_cast<double>(rows)));
}

BenchCost cost_of(const std::vector<BenchStep>& steps, const model::ModelConfig& config,
                  const TokenCost& token, double kv_bytes) {
  BenchCost cost;
  const double head_flops = static_cast<double>(token.head_bytes);  // 2 for each bf16 of 2 bytes
  const double row_flops = static_cast<double>(token.flops) - head_flops;
  for (const BenchStep& step : steps) {
    std::int64_t rows = 0;
    std::int64_t logit_rows = 0;
    for (const StepSlice& slice : step) {
      rows += slice.rows;
      logit_rows += slice.wants_logits ? 1 : 0;
      add_attention(slice, config, kv_bytes, cost);
    }
    const double experts = expected_experts(config.num_experts, config.top_k, rows) / config.top_k;
    cost.bytes += experts * static_cast<double>(token.expert_bytes) +
                  static_cast<double>(token.attention_bytes) +
                  (logit_rows > 0 ? static_cast<double>(token.head_bytes) : 0.0);
    cost.flops +=
        static_cast<double>(rows) * row_flops + static_cast<double>(logit_rows) * head_flops;
  }
  return cost;
}

}  // namespace nibble::commands
