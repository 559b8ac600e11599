#include "model/gpt_oss.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "model/kernel_table.h"
#include "model/layer_pass.h"
#include "model/placement.h"
#include "model/sample_block.h"
#include "model/step_graphs.h"
#include "model/step_inputs.h"
#include "model/step_ring.h"

namespace nibble::model {
namespace {

// Rows that a device's router did not refuse: every byte 0x7F.
constexpr std::uint8_t kNoBadRowByte = 0x7F;
constexpr std::int32_t kNoBadRow = 0x7F7F7F7F;

class GptOss final : public Model {
 public:
  // Opens the device, plans and takes memory, brings the weights where the kernels run.
  static Result<std::unique_ptr<Model>> create(ModelConfig config, const ModelOptions& options,
                                               ModelWeights weights) {
    auto model = std::make_unique<GptOss>(std::move(config), options, std::move(weights));
    NIBBLE_RETURN_IF_ERROR(model->place());
    return std::unique_ptr<Model>(std::move(model));
  }

  GptOss(ModelConfig config, const ModelOptions& options, ModelWeights weights)
      : config_(std::move(config)),
        options_(options),
        weights_(std::move(weights)),
        kernels_(kernel_table(options.kernels)),
        pool_(options.num_threads),
        inv_freq_(static_cast<std::size_t>(config_.head_dim / 2)) {
    kernels::yarn_inv_freq(config_.rope, config_.head_dim, inv_freq_.data());
    concentration_ = kernels::yarn_concentration(config_.rope);
  }

  const ModelConfig& config() const override { return config_; }
  const ModelOptions& options() const override { return options_; }
  int num_threads() const override { return pool_.size(); }
  const DeviceFacts* device() const override { return at_.exec.device; }
  std::string decode_path() const override { return at_.decode_step.description(); }
  void set_tap(Tap tap) override { tap_ = std::move(tap); }
  MemoryPlan memory() const override { return at_.memory; }
  std::uint64_t kernels_of_step() const override { return trace_.seen(); }
  std::vector<std::string> kernel_names(std::uint64_t kernels) const override {
    return options_.kernels == KernelChoice::kReference ? std::vector<std::string>{"reference"}
                                                        : trace_.names(kernels);
  }

  Status forward(const BatchPlan& plan, std::span<float> logits) override {
    NIBBLE_CHECK(ring_.num_started() == 0, ring_.num_started());
    NIBBLE_RETURN_IF_ERROR(check(plan, 0));
    NIBBLE_RETURN_IF_ERROR(check_room(plan, logits));
    NIBBLE_RETURN_IF_ERROR(begin(plan));
    step_.logits = is_on_device() ? at_.work.logits : logits.data();
    NIBBLE_RETURN_IF_ERROR(compute());
    return is_on_device() ? finish_on_device(logits) : Status();
  }

  bool can_sample() const override { return is_on_device(); }
  Status start(const BatchPlan& plan, const SampleBatch& batch) override;
  Result<std::span<const std::int32_t>> finish() override;
  Status copy_logits(std::int32_t logit_row, std::span<float> logits) override;

 private:
  Status place();
  bool is_on_device() const { return at_.device != nullptr; }
  StepLimits limits(std::int32_t rows) const {
    return step_limits(rows, options_.max_logit_rows, options_.max_position, options_.page_size);
  }

  // `num_sampled`: tokens of the step before that the plan may name.
  Status check(const BatchPlan& plan, std::int32_t num_sampled) const;
  Status check_room(const BatchPlan& plan, std::span<float> logits) const;
  Status begin(const BatchPlan& plan);
  Status compute();
  Status run_layers();
  Status run_decode_step();
  Status sample(const SampleBlock& block);
  Status check_routers(const std::int32_t* bad_rows) const;
  Status finish_on_device(std::span<float> logits);

  ModelConfig config_;
  ModelOptions options_;
  std::optional<ModelWeights> weights_;  // gone once they are on a device
  KernelTable kernels_;
  ThreadPool pool_;
  std::vector<float> inv_freq_;
  float concentration_ = 1.0F;
  Tap tap_;
  KernelTrace trace_;  // of the running step

  Placement at_;
  StepRing ring_;                 // of a device
  StepGraphs graphs_;             // likewise
  std::int32_t num_sampled_ = 0;  // tokens of the step started last
  StepRows step_;                 // the running one
};

Status GptOss::place() {
  const Placed what{.config = config_,
                    .options = options_,
                    .weights = weights_,
                    .inv_freq = inv_freq_,
                    .pool = pool_,
                    .trace = trace_};
  if (options_.kernels != KernelChoice::kCuda) {
    return place_on_host(what, at_);
  }
  NIBBLE_RETURN_IF_ERROR(place_on_device(what, at_));
  return ring_.create(*at_.device, {.input_bytes = input_bytes(options_),
                                    .sample_bytes = SampleBlock::bytes(options_.max_logit_rows),
                                    .num_notes = config_.num_layers + 1,
                                    .max_logit_rows = options_.max_logit_rows,
                                    .vocab = config_.vocab});
}

Status GptOss::check(const BatchPlan& plan, std::int32_t num_sampled) const {
  if (plan.num_tokens() > options_.max_batch_tokens ||
      static_cast<std::int32_t>(plan.logit_rows.size()) > options_.max_logit_rows) {
    return error(Code::kInvalidArgument, "plan of {} rows and {} logit rows, limits are {} and {}",
                 plan.num_tokens(), plan.logit_rows.size(), options_.max_batch_tokens,
                 options_.max_logit_rows);
  }
  if (plan.page_size != options_.page_size) {
    return error(Code::kInvalidArgument, "plan with pages of {} tokens, the cache has {}",
                 plan.page_size, options_.page_size);
  }
  if (is_on_device()) {  // whose kernels cannot refuse
    for (const std::int32_t id : plan.token_ids) {
      if (id < -num_sampled || id >= config_.vocab) {
        return error(Code::kInvalidArgument, "want token ids in 0..{}, got {}", config_.vocab - 1,
                     id);
      }
    }
  }
  return {};
}

Status GptOss::check_room(const BatchPlan& plan, std::span<float> logits) const {
  const bool stay_on_device = is_on_device() && logits.empty();
  if (!stay_on_device &&
      logits.size() < plan.logit_rows.size() * static_cast<std::size_t>(config_.vocab)) {
    return error(Code::kInvalidArgument, "room for {} logits, {} rows of {} wanted", logits.size(),
                 plan.logit_rows.size(), config_.vocab);
  }
  return {};
}

Status GptOss::begin(const BatchPlan& plan) {
  trace_.begin();
  step_.rows = plan.num_tokens();
  step_.num_logit_rows = static_cast<std::int32_t>(plan.logit_rows.size());
  Arena seen(at_.input_block);
  std::byte* const host_block = is_on_device() ? ring_.inputs() : at_.input_block;
  Arena host(host_block);
  step_.inputs = StepInputs::lay_out(limits(step_.rows), seen);
  step_.host_inputs = StepInputs::lay_out(limits(step_.rows), host);
  NIBBLE_ASSIGN_OR_RETURN(const StepSizes sizes, fill_step(plan, limits(options_.max_batch_tokens),
                                                           step_.host_inputs, step_.inputs));
  step_.num_sequences = sizes.sequences;
  if (!is_on_device()) {
    return {};
  }
  Device& device = *at_.device;
  NIBBLE_RETURN_IF_ERROR(device.fill(at_.work.bad_rows, kNoBadRowByte,
                                     std::int64_t{4} * (config_.num_layers + 1), at_.exec.stream));
  return device.copy(at_.input_block, host_block, sizes.used_bytes, at_.exec.stream);
}

Status GptOss::compute() {
  if (!is_on_device() || tap_ || !can_replay(step_)) {
    return run_layers();
  }
  // The persistent kernel finds the position in its inputs: one graph, of no chunks.
  const bool is_decode_step = step_.rows == 1 && at_.decode_step.is_chosen();
  const StepGraphs::Shape shape =
      is_decode_step ? StepGraphs::Shape(1, 0) : StepGraphs::shape_of(step_);
  return graphs_.run(shape, *at_.device, at_.exec.stream, trace_, [this, is_decode_step] {
    return is_decode_step ? run_decode_step() : run_layers();
  });
}

Status GptOss::run_layers() {
  const PassParts parts{.config = config_,
                        .options = options_,
                        .kernels = kernels_,
                        .exec = at_.exec,
                        .arrays = at_.arrays,
                        .cache = at_.cache,
                        .work = at_.work,
                        .tap = tap_,
                        .device = at_.device.get(),
                        .concentration = concentration_};
  return LayerPass(parts, step_).run();
}

Status GptOss::run_decode_step() {
  return at_.decode_step.run(*at_.device, config_,
                             {.arrays = at_.arrays,
                              .cache = at_.cache,
                              .inputs = step_.inputs,
                              .work = at_.work,
                              .concentration = concentration_},
                             kernels_.decode_step, at_.exec);
}

Status GptOss::start(const BatchPlan& plan, const SampleBatch& batch) {
  NIBBLE_CHECK(is_on_device() && ring_.num_started() < kMostStartedSteps);
  NIBBLE_RETURN_IF_ERROR(check(plan, num_sampled_));
  NIBBLE_ASSIGN_OR_RETURN(
      const SampleBlock block,
      SampleBlock::fill(batch, static_cast<std::int32_t>(plan.logit_rows.size()),
                        ring_.sample_block(), at_.work.sample_block));
  NIBBLE_RETURN_IF_ERROR(begin(plan));
  const bool names_tokens = std::any_of(plan.token_ids.begin(), plan.token_ids.end(),
                                        [](std::int32_t id) { return id < 0; });
  if (names_tokens) {
    NIBBLE_RETURN_IF_ERROR(kernels_.pick_ids({.ids = step_.inputs.token_ids,
                                              .sampled = at_.work.sampled,
                                              .count = step_.rows,
                                              .num_sampled = num_sampled_},
                                             at_.exec));
  }
  step_.logits = at_.work.logits;
  NIBBLE_RETURN_IF_ERROR(compute());
  return sample(block);
}

Status GptOss::sample(const SampleBlock& block) {
  num_sampled_ = step_.num_logit_rows;
  NIBBLE_RETURN_IF_ERROR(at_.device->copy(at_.work.sample_block, ring_.sample_block(),
                                          block.used_bytes, at_.exec.stream));
  NIBBLE_RETURN_IF_ERROR(kernels_.sample_rows({.logits = at_.work.logits,
                                               .rows = block.rows,
                                               .counts = block.counts,
                                               .logit_bias = block.logit_bias,
                                               .ids = at_.work.sampled,
                                               .num_rows = step_.num_logit_rows,
                                               .vocab = config_.vocab},
                                              at_.exec));
  return ring_.send_back(at_.work.sampled, step_.num_logit_rows, at_.work.bad_rows,
                         at_.exec.stream);
}

Result<std::span<const std::int32_t>> GptOss::finish() {
  NIBBLE_ASSIGN_OR_RETURN(const StepRing::Done done, ring_.finish());
  NIBBLE_RETURN_IF_ERROR(check_routers(done.bad_rows));
  return done.tokens;
}

Status GptOss::copy_logits(std::int32_t logit_row, std::span<float> logits) {
  NIBBLE_CHECK(ring_.num_started() == 0 && logit_row < num_sampled_, logit_row);
  const std::int64_t bytes = std::int64_t{4} * config_.vocab;
  const float* const from = at_.work.logits + std::int64_t{logit_row} * config_.vocab;
  NIBBLE_RETURN_IF_ERROR(at_.device->copy(ring_.logits(), from, bytes, at_.exec.stream));
  NIBBLE_RETURN_IF_ERROR(at_.device->wait(at_.exec.stream));
  std::memcpy(logits.data(), ring_.logits(), static_cast<std::size_t>(bytes));
  return {};
}

Status GptOss::check_routers(const std::int32_t* bad_rows) const {
  for (std::int32_t layer = 0; layer < config_.num_layers; ++layer) {
    if (bad_rows[layer] != kNoBadRow) {
      return error(Code::kInternal, "layer {}: router logits of row {} are not numbers", layer,
                   bad_rows[layer]);
    }
  }
  if (bad_rows[config_.num_layers] != kNoBadRow) {
    return error(Code::kDevice, "decode step: a multiprocessor waited 10 s for another");
  }
  return {};
}

Status GptOss::finish_on_device(std::span<float> logits) {
  Device& device = *at_.device;
  std::int32_t* const bad_rows = ring_.bad_rows();
  const std::int64_t bad_bytes = std::int64_t{4} * (config_.num_layers + 1);
  const std::int64_t bytes = std::int64_t{4} * step_.num_logit_rows * config_.vocab;
  NIBBLE_RETURN_IF_ERROR(device.copy(bad_rows, at_.work.bad_rows, bad_bytes, at_.exec.stream));
  if (!logits.empty() && bytes > 0) {
    NIBBLE_RETURN_IF_ERROR(device.copy(ring_.logits(), at_.work.logits, bytes, at_.exec.stream));
  }
  NIBBLE_RETURN_IF_ERROR(device.wait(at_.exec.stream));
  NIBBLE_RETURN_IF_ERROR(check_routers(bad_rows));
  if (!logits.empty()) {
    std::memcpy(logits.data(), ring_.logits(), static_cast<std::size_t>(bytes));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> make_gpt_oss(ModelConfig config, const ModelOptions& options,
                                            ModelWeights weights) {
  return GptOss::create(std::move(config), options, std::move(weights));
}

}  // namespace nibble::model
