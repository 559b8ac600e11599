// A model that is arithmetic: its cache holds token ids, and the logits of a row are random numbers
// drawn from a hash of the whole history that the row can read. A wrong page, a page freed too
// early or a token out of place changes what is generated.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/token_engine.h"
#include "kernels/sample/sample.h"

namespace nibble::engine {

struct FakeOptions {
  // Chooses tokens itself, as a device does: a started step is computed when it is finished, or
  // when there are too many, from what was handed over at its start.
  bool samples = false;
  std::int32_t vocab = 32;
  std::int32_t max_position = 200;
  SchedulerLimits limits{.max_num_seqs = 8,
                         .max_batch_tokens = 16,
                         .max_logit_rows = 8,
                         .page_size = 4,
                         .window = 8,
                         .num_pages = {400, 0},  // the window's are computed
                         .shares_prefixes = true};
};

class FakeModel final : public model::Model {
 public:
  // May change the logits of the row at `position` of the sequence whose first id is `first`.
  using Script =
      std::function<void(std::int32_t first, std::int32_t position, std::span<float> logits)>;

  explicit FakeModel(const FakeOptions& options)
      : limits_(options.limits), samples_(options.samples) {
    config_.vocab = options.vocab;
    options_.max_batch_tokens = limits_.max_batch_tokens;
    options_.max_logit_rows = limits_.max_logit_rows;
    options_.max_position = options.max_position;
    options_.page_size = limits_.page_size;
    for (int group = 0; group < model::kNumCacheGroups; ++group) {
      cache_[group].assign(static_cast<std::size_t>(limits_.num_pages[group] * limits_.page_size),
                           -1);
    }
  }

  Script script;
  std::optional<Status> fail_next;
  int num_forwards = 0;
  std::int64_t num_rows = 0;  // computed so far

  const model::ModelConfig& config() const override { return config_; }
  const model::ModelOptions& options() const override { return options_; }
  model::MemoryPlan memory() const override { return {}; }
  int num_threads() const override { return 1; }
  void set_tap(model::Tap /*tap*/) override {}
  // One kernel for steps of one row, another for steps of more.
  std::uint64_t kernels_of_step() const override { return last_rows_ == 1 ? 1 : 2; }
  std::vector<std::string> kernel_names(std::uint64_t kernels) const override {
    return {"kernels " + std::to_string(kernels)};
  }

  Status forward(const model::BatchPlan& plan, std::span<float> logits) override {
    ++num_forwards;
    num_rows += plan.num_tokens();
    last_rows_ = plan.num_tokens();
    if (fail_next.has_value()) {
      return *std::exchange(fail_next, std::nullopt);
    }
    for (const model::SequencePlan& sequence : plan.sequences) {
      write(plan, sequence);
    }
    std::size_t next = 0;
    for (const model::SequencePlan& sequence : plan.sequences) {
      const std::int32_t end = sequence.first_row + sequence.num_rows;
      for (; next < plan.logit_rows.size() && plan.logit_rows[next] < end; ++next) {
        const std::int32_t position =
            sequence.first_position + plan.logit_rows[next] - sequence.first_row;
        const auto vocab = static_cast<std::size_t>(config_.vocab);
        const std::span<float> row = logits.subspan(next * vocab, vocab);
        draw(history(sequence, position), row);
        if (script) {
          script(slot(sequence, 0, 0), position, row);
        }
      }
    }
    return {};
  }

  bool can_sample() const override { return samples_; }
  Status start(const model::BatchPlan& plan, const model::SampleBatch& batch) override {
    most_started = std::max(most_started, static_cast<int>(started_.size()) + 1);
    if (static_cast<int>(started_.size()) == model::kMostStartedSteps) {
      return {Code::kInternal, "too many steps started"};
    }
    started_.push_back({plan, batch});
    last_rows_ = plan.num_tokens();
    return {};
  }
  Result<std::span<const std::int32_t>> finish() override {
    auto [plan, batch] = std::move(started_.front());
    started_.pop_front();
    for (std::int32_t& id : plan.token_ids) {
      id = id < 0 ? sampled_.at(static_cast<std::size_t>(-1 - id)) : id;
    }
    logits_.assign(plan.logit_rows.size() * static_cast<std::size_t>(config_.vocab), 0.0F);
    sampled_.assign(plan.logit_rows.size(), -1);
    const Status status = forward(plan, logits_);
    if (!status.ok()) {
      return status;
    }
    if (batch.rows.size() != plan.logit_rows.size()) {
      return Status(Code::kInternal, "a row for each logit row is missing");
    }
    const Status drawn =
        kernels::sample_rows_ref({.logits = logits_.data(),
                                  .rows = batch.rows.data(),
                                  .counts = batch.counts.data(),
                                  .logit_bias = batch.logit_bias.data(),
                                  .ids = sampled_.data(),
                                  .num_rows = static_cast<std::int32_t>(batch.rows.size()),
                                  .vocab = config_.vocab});
    if (!drawn.ok()) {
      return drawn;
    }
    tokens_ = sampled_;
    return std::span<const std::int32_t>(tokens_);
  }
  Status copy_logits(std::int32_t logit_row, std::span<float> logits) override {
    ++num_copied_rows;
    if (!started_.empty()) {
      return {Code::kInternal, "the logits are those of another step"};
    }
    const auto vocab = static_cast<std::size_t>(config_.vocab);
    std::copy_n(logits_.begin() + static_cast<std::ptrdiff_t>(logit_row * vocab), vocab,
                logits.begin());
    return {};
  }
  int most_started = 0;
  int num_copied_rows = 0;

  // What a free page held must not matter.
  void poison(int group, std::int32_t page) {
    const auto at = cache_[group].begin() + page * limits_.page_size;
    std::fill(at, at + limits_.page_size, -1);
  }

 private:
  std::int32_t& slot(const model::SequencePlan& sequence, int group, std::int32_t position) {
    const model::PageTable& table = sequence.tables[group];
    const std::int32_t page =
        table.pages.at(static_cast<std::size_t>(position / limits_.page_size - table.first_page));
    return cache_[group].at(
        static_cast<std::size_t>(page * limits_.page_size + position % limits_.page_size));
  }

  void write(const model::BatchPlan& plan, const model::SequencePlan& sequence) {
    for (int group = 0; group < model::kNumCacheGroups; ++group) {
      for (std::int32_t row = 0; row < sequence.num_rows; ++row) {
        slot(sequence, group, sequence.first_position + row) =
            plan.token_ids[static_cast<std::size_t>(sequence.first_row + row)];
      }
    }
  }

  // FNV-1a over all ids of the full group, then those in the window.
  std::uint64_t history(const model::SequencePlan& sequence, std::int32_t position) {
    std::uint64_t hash = 14695981039346656037ULL;
    const auto mix = [&](std::int32_t id) {
      hash = (hash ^ static_cast<std::uint64_t>(id)) * 1099511628211ULL;
    };
    for (std::int32_t key = 0; key <= position; ++key) {
      mix(slot(sequence, 0, key));
    }
    for (std::int32_t key = std::max(0, position - limits_.window + 1); key <= position; ++key) {
      mix(slot(sequence, 1, key));
    }
    return hash;
  }

  static void draw(std::uint64_t hash, std::span<float> row) {
    for (std::size_t id = 0; id < row.size(); ++id) {
      row[id] = 4.0F * kernels::uniform(hash, id) - 2.0F;
    }
  }

  SchedulerLimits limits_;
  bool samples_;
  std::deque<std::pair<model::BatchPlan, model::SampleBatch>> started_;
  std::vector<float> logits_;          // of the step finished last
  std::vector<std::int32_t> sampled_;  // likewise
  std::vector<std::int32_t> tokens_;
  std::int32_t last_rows_ = 0;
  model::ModelConfig config_;
  model::ModelOptions options_;
  std::vector<std::int32_t> cache_[model::kNumCacheGroups];
};

// An engine over a fake model, and the events of every sequence.
struct FakeEngine {
  explicit FakeEngine(FakeOptions options = {}) {
    if (options.limits.num_pages[1] == 0) {
      options.limits.num_pages[1] = window_pages(options.limits);
    }
    auto owned = std::make_unique<FakeModel>(options);
    model = owned.get();
    engine = std::make_unique<TokenEngine>(std::move(owned), options.limits);
  }

  // Runs until nothing is left to do; events in order.
  std::vector<TokenEvent> run() {
    std::vector<TokenEvent> events;
    for (int steps = 0; engine->has_work(); ++steps) {
      if (steps == 5000) {
        ADD_FAILURE() << "work left after 5,000 steps";
        break;
      }
      step(events);
    }
    return events;
  }

  // A step, after which free pages hold nothing of use.
  void step(std::vector<TokenEvent>& events) {
    engine->step(events);
    for (int group = 0; group < model::kNumCacheGroups; ++group) {
      const PagePool& pool = engine->scheduler().pool(static_cast<model::CacheGroup>(group));
      for (std::int32_t page = 0; page < pool.num_pages(); ++page) {
        if (pool.is_free(page)) {
          model->poison(group, page);
        }
      }
    }
  }

  // The events of `request` alone.
  std::vector<TokenEvent> run(TokenRequest request) {
    const auto id = engine->add(std::move(request));
    return id.has_value() ? run() : std::vector<TokenEvent>();
  }

  // No page is used by a sequence; some may hold prefixes.
  bool holds_no_page() const {
    for (const auto group : {model::CacheGroup::kFull, model::CacheGroup::kWindow}) {
      const PagedCache& cache = engine->scheduler().cache();
      if (cache.num_available(group) != cache.pool(group).num_pages()) {
        return false;
      }
    }
    return engine->scheduler().num_running() + engine->scheduler().num_waiting() == 0;
  }

  FakeModel* model = nullptr;
  std::unique_ptr<TokenEngine> engine;
};

inline std::vector<std::int32_t> tokens_of(const std::vector<TokenEvent>& events,
                                           SequenceId sequence) {
  std::vector<std::int32_t> out;
  for (const TokenEvent& event : events) {
    if (event.sequence == sequence && event.token >= 0) {
      out.push_back(event.token);
    }
  }
  return out;
}

inline std::vector<std::int32_t> tokens_of(const std::vector<TokenEvent>& events) {
  return events.empty() ? std::vector<std::int32_t>() : tokens_of(events, events[0].sequence);
}

// `count` ids from 1 on.
inline std::vector<std::int32_t> counting_prompt(std::int32_t count, std::int32_t first = 1) {
  std::vector<std::int32_t> out;
  for (std::int32_t i = 0; i < count; ++i) {
    out.push_back((first + i) % 32);
  }
  return out;
}

}  // namespace nibble::engine
