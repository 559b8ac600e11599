#include "api/commands/bench_runner.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "api/activation.h"
#include "api/commands/bench_ids.h"
#include "api/commands/bench_steps.h"
#include "api/decode_path.h"
#include "base/error.h"
#include "model/model.h"
#include "tensor/machine_facts.h"

namespace nibble::commands {
namespace {

using Clock = std::chrono::steady_clock;

class StepRunner final : public BenchRunner {
 public:
  explicit StepRunner(std::unique_ptr<model::Model> model)
      : model_(std::move(model)),
        ids_(random_ids(model_->config().vocab, 1)),
        logits_(model_->can_sample() ? 0
                                     : static_cast<std::size_t>(model_->options().max_logit_rows) *
                                           static_cast<std::size_t>(model_->config().vocab)) {}

  int num_threads() const override { return model_->num_threads(); }
  std::string decode_path() const override { return model_->decode_path(); }

  Status prepare(const BenchTest& test) override {
    pages_ = pages_for(test, model_->config().window);
    steps_ = timed_steps(test);
    return forward(depth_steps(test));
  }

  Result<std::int64_t> run(const BenchTest& /*test*/) override {
    const Clock::time_point start = Clock::now();
    NIBBLE_RETURN_IF_ERROR(forward(steps_));
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  }

 private:
  Status forward(const std::vector<BenchStep>& steps) {
    if (model_->can_sample()) {
      return start_ahead(steps);
    }
    for (const BenchStep& step : steps) {
      fill_plan(step, pages_, ids_, plan_);
      NIBBLE_RETURN_IF_ERROR(model_->forward(plan_, logits_));
    }
    return {};
  }

  // As the engine drives such a model: a step is enqueued while the one before it runs, and the
  // tokens, chosen there, are all that comes back.
  Status start_ahead(const std::vector<BenchStep>& steps) {
    int num_started = 0;
    for (const BenchStep& step : steps) {
      fill_plan(step, pages_, ids_, plan_);
      batch_.rows.assign(plan_.logit_rows.size(), {});
      NIBBLE_RETURN_IF_ERROR(model_->start(plan_, batch_));
      if (++num_started == model::kMostStartedSteps) {
        NIBBLE_RETURN_IF_ERROR(finish_one());
        --num_started;
      }
    }
    for (; num_started > 0; --num_started) {
      NIBBLE_RETURN_IF_ERROR(finish_one());
    }
    return {};
  }
  Status finish_one() {
    const auto tokens = model_->finish();
    return tokens ? Status() : tokens.error();
  }

  std::unique_ptr<model::Model> model_;
  std::vector<std::int32_t> ids_;
  std::vector<float> logits_;
  BenchPages pages_;
  std::vector<BenchStep> steps_;
  model::BatchPlan plan_;
  model::SampleBatch batch_;
};

// Grows `options` to what the test needs.
void cover(const BenchTest& test, const model::ModelConfig& config, model::ModelOptions& options) {
  const BenchPages pages = pages_for(test, config.window);
  options.page_size = pages.page_size;
  for (int group = 0; group < model::kNumCacheGroups; ++group) {
    options.num_pages[group] =
        std::max(options.num_pages[group], test.streams * pages.per_stream[group]);
  }
  options.max_position = std::max(options.max_position, test.n_depth + test.n_prompt + test.n_gen);
  for (const auto& steps : {depth_steps(test), timed_steps(test)}) {
    for (const BenchStep& step : steps) {
      std::int32_t rows = 0;
      std::int32_t logit_rows = 0;
      for (const StepSlice& slice : step) {
        rows += slice.rows;
        logit_rows += slice.wants_logits ? 1 : 0;
      }
      options.max_batch_tokens = std::max(options.max_batch_tokens, rows);
      options.max_logit_rows = std::max(options.max_logit_rows, logit_rows);
    }
  }
}

Status check_memory(const model::ModelConfig& config, const model::ModelOptions& options) {
  MachineFacts machine;
  probe_host(machine);
  std::int64_t bytes = 0;
  for (const model::CacheGroup group : {model::CacheGroup::kFull, model::CacheGroup::kWindow}) {
    bytes += options.num_pages[static_cast<int>(group)] * model::page_bytes(config, options, group);
  }
  if (bytes > machine.available_bytes) {
    return error(Code::kExhausted,
                 "bench: want {} bytes of cache for the deepest test, found {} bytes of memory; "
                 "lower --n-depth or --streams",
                 bytes, machine.available_bytes);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<BenchRunner>> make_step_runner(const BenchOptions& options,
                                                      model::KernelChoice kernels,
                                                      std::span<const BenchTest> tests,
                                                      const ModelSource& source) {
  const DType dtype = stored_dtype(options.activation);
  model::ModelOptions wanted{.activation = dtype,
                             .kv_dtype = cache_dtype(options.activation, options.kv_cache),
                             .int8_experts = options.activation == Activation::kInt8,
                             .kernels = kernels,
                             .decode = model_decode_path(options.decode_path),
                             .num_threads = tests.front().n_threads,
                             .max_batch_tokens = 1,
                             .max_logit_rows = 1};
  for (const BenchTest& test : tests) {
    cover(test, source.config, wanted);
  }
  if (kernels != model::KernelChoice::kCuda) {  // a GPU's memory is planned by the model
    NIBBLE_RETURN_IF_ERROR(check_memory(source.config, wanted));
  }
  NIBBLE_ASSIGN_OR_RETURN(std::unique_ptr<model::Model> model, source.load(wanted));
  return std::unique_ptr<BenchRunner>(std::make_unique<StepRunner>(std::move(model)));
}

}  // namespace nibble::commands
