#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "model/kernel_table.h"
#include "model/model.h"
#include "model/model_weights.h"
#include "model/workspace.h"

namespace nibble::model {
namespace {

using kernels::GemmPart;

class GptOss final : public Model {
 public:
  GptOss(ModelConfig config, ModelOptions options, ModelWeights weights)
      : config_(std::move(config)),
        options_(options),
        weights_(std::move(weights)),
        kernels_(kernel_table(options.kernels)),
        pool_(options.num_threads),
        exec_{.pool = &pool_},
        cache_(KvCache::create(config_, options_)),
        work_(Workspace::create(config_, options_, exec_)),
        inv_freq_(static_cast<std::size_t>(config_.head_dim / 2)) {
    kernels::yarn_inv_freq(config_.rope, config_.head_dim, inv_freq_.data());
    concentration_ = kernels::yarn_concentration(config_.rope);
  }

  const ModelConfig& config() const override { return config_; }
  const ModelOptions& options() const override { return options_; }
  int num_threads() const override { return pool_.size(); }
  void set_tap(Tap tap) override { tap_ = std::move(tap); }

  MemoryPlan memory() const override {
    return {.mapped_bytes = weights_.checkpoint.file_bytes(),
            .owned_weight_bytes = weights_.owned_bytes,
            .kv_bytes = cache_.bytes,
            .workspace_bytes = work_.bytes()};
  }

  Status forward(const BatchPlan& plan, std::span<float> logits) override {
    NIBBLE_RETURN_IF_ERROR(check(plan, logits));
    place_rows(plan);
    rows_ = plan.num_tokens();
    NIBBLE_RETURN_IF_ERROR(kernels_.gather_rows({.table = weights_.embedding.data,
                                                 .ids = plan.token_ids.data(),
                                                 .out = work_.residual.data(),
                                                 .rows = rows_,
                                                 .cols = config_.hidden,
                                                 .table_rows = config_.vocab,
                                                 .dtype = weights_.embedding.dtype},
                                                exec_));
    for (std::size_t index = 0; index < weights_.layers.size(); ++index) {
      NIBBLE_RETURN_IF_ERROR(attention_block(plan, index));
      tap(TapPlace::kAttention, index, work_.residual.data(), config_.hidden);
      NIBBLE_RETURN_IF_ERROR(moe_block(index));
      tap(TapPlace::kExperts, index, work_.residual.data(), config_.hidden);
    }
    return head(plan, logits);
  }

 private:
  Status check(const BatchPlan& plan, std::span<float> logits) const;
  void place_rows(const BatchPlan& plan);
  Status attention_block(const BatchPlan& plan, std::size_t index);
  Status attend(const BatchPlan& plan, std::size_t index);
  Status moe_block(std::size_t index);
  Status head(const BatchPlan& plan, std::span<float> logits);
  Status norm(const float* x, const Buffer<float>& weight, std::int32_t rows);
  Status project(const void* x, std::span<const GemmPart> parts, DType weight_dtype, std::int32_t k,
                 float* out, bool accumulate);
  void tap(TapPlace place, std::size_t layer, float* values, std::int32_t cols) const {
    if (tap_) {
      tap_(place, static_cast<std::int32_t>(layer),
           {values, static_cast<std::size_t>(rows_) * static_cast<std::size_t>(cols)});
    }
  }

  ModelConfig config_;
  ModelOptions options_;
  ModelWeights weights_;
  KernelTable kernels_;
  ThreadPool pool_;
  Exec exec_;
  KvCache cache_;
  Workspace work_;
  std::vector<float> inv_freq_;
  float concentration_ = 1.0F;
  Tap tap_;
  std::int32_t rows_ = 0;  // of the running step
  std::vector<kernels::AttentionSequence> sequences_[kNumCacheGroups];
};

Status GptOss::check(const BatchPlan& plan, std::span<float> logits) const {
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
  if (logits.size() < plan.logit_rows.size() * static_cast<std::size_t>(config_.vocab)) {
    return error(Code::kInvalidArgument, "room for {} logits, {} rows of {} wanted", logits.size(),
                 plan.logit_rows.size(), config_.vocab);
  }
  return {};
}

// Positions, cache slots and attention ranges of every row, the same for all layers of a group.
void GptOss::place_rows(const BatchPlan& plan) {
  for (int group = 0; group < kNumCacheGroups; ++group) {
    sequences_[group].clear();
    for (const SequencePlan& sequence : plan.sequences) {
      const PageTable& table = sequence.tables[group];
      sequences_[group].push_back({.first_row = sequence.first_row,
                                   .num_rows = sequence.num_rows,
                                   .first_position = sequence.first_position,
                                   .pages = table.pages.data(),
                                   .first_page = table.first_page});
      for (std::int32_t row = 0; row < sequence.num_rows; ++row) {
        const std::int32_t position = sequence.first_position + row;
        const std::int32_t page = position / plan.page_size - table.first_page;
        NIBBLE_CHECK(page >= 0 && page < static_cast<std::int32_t>(table.pages.size()), position);
        const auto at = static_cast<std::size_t>(sequence.first_row + row);
        work_.positions[at] = position;
        work_.slots[group][at] =
            std::int64_t{table.pages[static_cast<std::size_t>(page)]} * plan.page_size +
            position % plan.page_size;
      }
    }
  }
}

Status GptOss::norm(const float* x, const Buffer<float>& weight, std::int32_t rows) {
  return kernels_.rms_norm({.x = x,
                            .weight = weight.data(),
                            .out = work_.normed.data(),
                            .rows = rows,
                            .cols = config_.hidden,
                            .eps = config_.rms_norm_eps,
                            .out_dtype = options_.activation},
                           exec_);
}

Status GptOss::project(const void* x, std::span<const GemmPart> parts, DType weight_dtype,
                       std::int32_t k, float* out, bool accumulate) {
  std::int64_t width = 0;
  for (const GemmPart& part : parts) {
    width += part.n;
  }
  return kernels_.gemm({.x = x,
                        .out = out,
                        .parts = parts,
                        .rows = rows_,
                        .k = k,
                        .out_stride = width,
                        .x_dtype = options_.activation,
                        .weight_dtype = weight_dtype,
                        .accumulate = accumulate},
                       exec_);
}

Status GptOss::attention_block(const BatchPlan& plan, std::size_t index) {
  const LayerWeights& layer = weights_.layers[index];
  NIBBLE_RETURN_IF_ERROR(norm(work_.residual.data(), layer.attention_norm, rows_));
  const std::int32_t q_width = config_.num_heads * config_.head_dim;
  const std::int32_t kv_width = config_.num_kv_heads * config_.head_dim;
  const float* bias = layer.qkv_bias.data();
  const GemmPart qkv[] = {{layer.q.data, bias, q_width},
                          {layer.k.data, bias + q_width, kv_width},
                          {layer.v.data, bias + q_width + kv_width, kv_width}};
  NIBBLE_RETURN_IF_ERROR(
      project(work_.normed.data(), qkv, layer.q.dtype, config_.hidden, work_.qkv.data(), false));
  NIBBLE_RETURN_IF_ERROR(attend(plan, index));
  const GemmPart o[] = {{layer.o.data, layer.o_bias.data(), config_.hidden}};
  return project(work_.attention.data(), o, layer.o.dtype, q_width, work_.residual.data(), true);
}

Status GptOss::attend(const BatchPlan& plan, std::size_t index) {
  const bool is_window = config_.is_window_layer[index];
  const int group = static_cast<int>(is_window ? CacheGroup::kWindow : CacheGroup::kFull);
  LayerCache& cache = cache_.layers[index];
  NIBBLE_RETURN_IF_ERROR(kernels_.rope_store({.qkv = work_.qkv.data(),
                                              .positions = work_.positions.data(),
                                              .slots = work_.slots[group].data(),
                                              .inv_freq = inv_freq_.data(),
                                              .q_out = work_.q.data(),
                                              .k_cache = cache.k.data(),
                                              .v_cache = cache.v.data(),
                                              .rows = rows_,
                                              .num_heads = config_.num_heads,
                                              .num_kv_heads = config_.num_kv_heads,
                                              .head_dim = config_.head_dim,
                                              .page_size = plan.page_size,
                                              .concentration = concentration_,
                                              .q_dtype = options_.activation,
                                              .kv_dtype = options_.kv_dtype},
                                             exec_));
  return kernels_.attention({.q = work_.q.data(),
                             .k_cache = cache.k.data(),
                             .v_cache = cache.v.data(),
                             .sinks = weights_.layers[index].sinks.data(),
                             .out = work_.attention.data(),
                             .sequences = sequences_[group],
                             .num_heads = config_.num_heads,
                             .num_kv_heads = config_.num_kv_heads,
                             .head_dim = config_.head_dim,
                             .page_size = plan.page_size,
                             .window = is_window ? config_.window : 0,
                             .scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim)),
                             .q_dtype = options_.activation,
                             .kv_dtype = options_.kv_dtype,
                             .workspace = work_.scratch.span()},
                            exec_);
}

Status GptOss::moe_block(std::size_t index) {
  const LayerWeights& layer = weights_.layers[index];
  NIBBLE_RETURN_IF_ERROR(norm(work_.residual.data(), layer.mlp_norm, rows_));
  const GemmPart router[] = {{layer.router.data, layer.router_bias.data(), config_.num_experts}};
  NIBBLE_RETURN_IF_ERROR(project(work_.normed.data(), router, layer.router.dtype, config_.hidden,
                                 work_.router_logits.data(), false));
  tap(TapPlace::kRouter, index, work_.router_logits.data(), config_.num_experts);
  const Status routed = kernels_.top_k({.logits = work_.router_logits.data(),
                                        .ids = work_.expert_ids.data(),
                                        .weights = work_.expert_weights.data(),
                                        .rows = rows_,
                                        .num_valid_rows = rows_,
                                        .num_experts = config_.num_experts,
                                        .top_k = config_.top_k},
                                       exec_);
  if (!routed.ok()) {
    return error(routed.code(), "layer {}: {}", index, routed.message());
  }
  return kernels_.moe({.x = work_.normed.data(),
                       .ids = work_.expert_ids.data(),
                       .weights = work_.expert_weights.data(),
                       .out = work_.residual.data(),
                       .gate_up = layer.gate_up,
                       .down = layer.down,
                       .num_tokens = rows_,
                       .hidden = config_.hidden,
                       .intermediate = config_.intermediate,
                       .num_experts = config_.num_experts,
                       .top_k = config_.top_k,
                       .alpha = config_.swiglu_alpha,
                       .limit = config_.swiglu_limit,
                       .x_dtype = options_.activation,
                       .workspace = work_.scratch.span()},
                      exec_);
}

Status GptOss::head(const BatchPlan& plan, std::span<float> logits) {
  const auto num_rows = static_cast<std::int32_t>(plan.logit_rows.size());
  if (num_rows == 0) {
    return {};
  }
  const auto hidden = static_cast<std::size_t>(config_.hidden);
  for (std::size_t row = 0; row < plan.logit_rows.size(); ++row) {
    std::memcpy(work_.logit_inputs.data() + row * hidden,
                work_.residual.data() + static_cast<std::size_t>(plan.logit_rows[row]) * hidden,
                hidden * sizeof(float));
  }
  NIBBLE_RETURN_IF_ERROR(norm(work_.logit_inputs.data(), weights_.final_norm, num_rows));
  const GemmPart parts[] = {{weights_.head.data, nullptr, config_.vocab}};
  rows_ = num_rows;
  NIBBLE_RETURN_IF_ERROR(project(work_.normed.data(), parts, weights_.head.dtype, config_.hidden,
                                 logits.data(), false));
  tap(TapPlace::kHead, weights_.layers.size(), logits.data(), config_.vocab);
  return {};
}

Status check_options(const ModelConfig& config, const ModelOptions& options) {
  if (options.max_batch_tokens < 1 || options.max_logit_rows < 1 || options.page_size < 1) {
    return error(Code::kInvalidArgument,
                 "want at least 1 batch token, logit row and token in a page, got {}, {}, {}",
                 options.max_batch_tokens, options.max_logit_rows, options.page_size);
  }
  if (options.max_position > config.max_position) {
    return error(Code::kInvalidArgument, "context of {} tokens wanted, the model has {}",
                 options.max_position, config.max_position);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(const std::string& folder, const ModelOptions& options) {
  NIBBLE_ASSIGN_OR_RETURN(ModelConfig config, load_config(folder));
  ModelOptions used = options;
  if (used.max_position == 0) {
    used.max_position = config.max_position;
  }
  NIBBLE_RETURN_IF_ERROR(check_options(config, used));
  NIBBLE_ASSIGN_OR_RETURN(ModelWeights weights, load_weights(folder, config));
  return std::unique_ptr<Model>(
      std::make_unique<GptOss>(std::move(config), used, std::move(weights)));
}

}  // namespace nibble::model
