#include "model/gpt_oss.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/attention/attention_plan.h"
#include "model/decode_path.h"
#include "model/kernel_table.h"
#include "model/model_arrays.h"
#include "model/sample_block.h"
#include "model/step_inputs.h"
#include "model/step_ring.h"
#include "model/workspace.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/uploader.h"

namespace nibble::model {
namespace {

using kernels::GemmPart;

// Rows that a device's router did not refuse: every byte 0x7F.
constexpr std::uint8_t kNoBadRowByte = 0x7F;
constexpr std::int32_t kNoBadRow = 0x7F7F7F7F;
// A graph of 36 layers takes a few MB of the device.
constexpr std::size_t kMostGraphs = 64;

class GptOss final : public Model {
 public:
  // Opens the device, plans and takes memory, brings the weights where the kernels run.
  static Result<std::unique_ptr<Model>> create(ModelConfig config, const ModelOptions& options,
                                               ModelWeights weights) {
    auto model = std::make_unique<GptOss>(std::move(config), options, std::move(weights));
    NIBBLE_RETURN_IF_ERROR(options.kernels == KernelChoice::kCuda ? model->place_on_device()
                                                                  : model->place_on_host());
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
    memory_.mapped_bytes = weights_->checkpoint.file_bytes();
    memory_.owned_weight_bytes = weights_->owned_bytes;
  }

  const ModelConfig& config() const override { return config_; }
  const ModelOptions& options() const override { return options_; }
  int num_threads() const override { return pool_.size(); }
  const DeviceFacts* device() const override { return exec_.device; }
  std::string decode_path() const override { return decode_step_.description(); }
  void set_tap(Tap tap) override { tap_ = std::move(tap); }
  MemoryPlan memory() const override { return memory_; }
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
    logits_ = device_ == nullptr ? logits.data() : work_.logits;
    NIBBLE_RETURN_IF_ERROR(compute());
    return device_ == nullptr ? Status() : finish_on_device(logits);
  }

  bool can_sample() const override { return device_ != nullptr; }
  Status start(const BatchPlan& plan, const SampleBatch& batch) override;
  Result<std::span<const std::int32_t>> finish() override;
  Status copy_logits(std::int32_t logit_row, std::span<float> logits) override;

 private:
  Status place_on_host();
  Status place_on_device();
  void lay_out(Arena& arena);
  StepLimits limits(std::int32_t rows) const {
    return step_limits(rows, options_.max_logit_rows, options_.max_position, options_.page_size);
  }

  std::int64_t input_bytes() const;
  // `num_sampled`: tokens of the step before that the plan may name.
  Status check(const BatchPlan& plan, std::int32_t num_sampled) const;
  Status check_room(const BatchPlan& plan, std::span<float> logits) const;
  Status begin(const BatchPlan& plan);
  bool can_replay() const;
  Status compute();
  Status enqueue(bool is_decode_step);
  Status run_layers();
  Status attention_block(std::size_t index);
  Status attend(std::size_t index);
  Status moe_block(std::size_t index);
  Status sorted_experts(const LayerArrays& layer);
  Status head();
  Status sample(const SampleBlock& block);
  Status check_routers(const std::int32_t* bad_rows) const;
  Status finish_on_device(std::span<float> logits);
  Status norm(const float* x, const float* weight, std::int32_t rows);
  Status project(const void* x, std::span<const GemmPart> parts, DType weight_dtype, std::int32_t k,
                 float* out, bool accumulate);
  Status tap(TapPlace place, std::size_t layer, float* values, std::int32_t cols);

  ModelConfig config_;
  ModelOptions options_;
  std::optional<ModelWeights> weights_;  // gone once they are on a device
  KernelTable kernels_;
  ThreadPool pool_;
  std::vector<float> inv_freq_;
  float concentration_ = 1.0F;
  MemoryPlan memory_;
  Tap tap_;

  // The device before what lies on it.
  std::unique_ptr<Device> device_;  // null: the host
  Device::OwnedStream stream_;
  Exec exec_;
  Device::Memory device_memory_;
  Buffer<std::byte> host_memory_;

  ModelArrays arrays_;
  KvCache cache_;
  Workspace work_;
  std::byte* input_block_ = nullptr;  // what kernels read
  StepRing ring_;                     // of a device
  std::int32_t num_sampled_ = 0;      // tokens of the step started last

  // Rows, and chunks of the longest sequence rounded up to a power of two.
  using StepShape = std::pair<std::int32_t, std::uint32_t>;
  struct StepGraph {
    bool has_run = false;
    Device::Graph graph;
    std::uint64_t kernels = 0;  // in the graph
  };
  std::map<StepShape, StepGraph> graphs_;

  DecodeStep decode_step_;

  // Of the running step.
  KernelTrace trace_;
  std::int32_t rows_ = 0;
  std::int32_t num_logit_rows_ = 0;
  StepInputs inputs_;       // as kernels see them
  StepInputs host_inputs_;  // as the host sees them
  std::int32_t num_sequences_ = 0;
  float* logits_ = nullptr;
};

std::int64_t GptOss::input_bytes() const {
  Arena size;
  (void)StepInputs::lay_out(limits(options_.max_batch_tokens), size);
  return size.bytes();
}

void GptOss::lay_out(Arena& arena) {
  cache_ = KvCache::lay_out(config_, options_, arena);
  memory_.kv_bytes = arena.bytes();
  work_ = Workspace::lay_out(config_, options_, exec_, arena);
  decode_step_.lay_out(arena);
  input_block_ = arena.take<std::byte>(input_bytes());
  memory_.workspace_bytes = arena.bytes() - memory_.kv_bytes;
}

Status GptOss::place_on_host() {
  if (options_.decode == DecodePath::kPersistent) {
    return error(Code::kUnsupported, "decode path persistent: want a GPU, found the processor");
  }
  exec_.pool = &pool_;
  exec_.trace = &trace_;
  Arena measured;
  lay_out(measured);
  host_memory_ = Buffer<std::byte>(static_cast<std::size_t>(measured.bytes()));
  Arena arena(host_memory_.data());
  lay_out(arena);
  if (weights_->dummy) {
    NIBBLE_RETURN_IF_ERROR(weights_->dummy->fill(exec_));
    memory_.owned_weight_bytes += weights_->dummy->bytes();
  }
  arrays_ = host_arrays(*weights_, inv_freq_.data());
  return {};
}

Status GptOss::place_on_device() {
  NIBBLE_ASSIGN_OR_RETURN(device_, open_cuda(options_.device_index));
  NIBBLE_ASSIGN_OR_RETURN(stream_, device_->make_stream());
  exec_ = {.stream = stream_.get(), .device = &device_->facts(), .trace = &trace_};
  const ModelArrays host = host_arrays(*weights_, inv_freq_.data());
  NIBBLE_RETURN_IF_ERROR(decode_step_.decide(host, config_, options_, exec_));
  Arena measured;
  lay_out(measured);
  const bool has_tiles = uses_expert_tiles(host, options_.activation);
  (void)place_arrays(host, config_, has_tiles, measured);
  NIBBLE_ASSIGN_OR_RETURN(const std::int64_t free, device_->free_bytes());
  if (measured.bytes() > free) {
    return error(Code::kExhausted,
                 "{}: want {} bytes for weights, {} for the cache and {} for activations, {} of {} "
                 "are free; lower --max-model-len",
                 device_->facts().name,
                 measured.bytes() - memory_.kv_bytes - memory_.workspace_bytes, memory_.kv_bytes,
                 memory_.workspace_bytes, free, device_->facts().memory_bytes);
  }
  NIBBLE_ASSIGN_OR_RETURN(device_memory_, device_->allocate(measured.bytes()));
  Arena arena(device_memory_.data());
  lay_out(arena);
  arrays_ = place_arrays(host, config_, has_tiles, arena);
  NIBBLE_ASSIGN_OR_RETURN(Uploader uploader, Uploader::create(*device_, &pool_));
  if (weights_->dummy) {
    NIBBLE_RETURN_IF_ERROR(make_arrays(*weights_->dummy, host, arrays_, config_, uploader, exec_));
    NIBBLE_RETURN_IF_ERROR(device_->wait(exec_.stream));
  } else {
    NIBBLE_RETURN_IF_ERROR(upload_arrays(host, arrays_, config_, uploader));
    if (has_tiles) {
      NIBBLE_RETURN_IF_ERROR(upload_tiles(host, arrays_, config_, pool_, uploader));
    }
  }
  memory_.mapped_bytes = 0;
  memory_.owned_weight_bytes = measured.bytes() - memory_.kv_bytes - memory_.workspace_bytes;
  weights_.reset();

  return ring_.create(*device_, {.input_bytes = input_bytes(),
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
  if (device_ != nullptr) {  // whose kernels cannot refuse
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
  const bool stay_on_device = device_ != nullptr && logits.empty();
  if (!stay_on_device &&
      logits.size() < plan.logit_rows.size() * static_cast<std::size_t>(config_.vocab)) {
    return error(Code::kInvalidArgument, "room for {} logits, {} rows of {} wanted", logits.size(),
                 plan.logit_rows.size(), config_.vocab);
  }
  return {};
}

Status GptOss::begin(const BatchPlan& plan) {
  trace_.begin();
  rows_ = plan.num_tokens();
  num_logit_rows_ = static_cast<std::int32_t>(plan.logit_rows.size());
  Arena seen(input_block_);
  std::byte* const host_block = device_ == nullptr ? input_block_ : ring_.inputs();
  Arena host(host_block);
  inputs_ = StepInputs::lay_out(limits(rows_), seen);
  host_inputs_ = StepInputs::lay_out(limits(rows_), host);
  NIBBLE_ASSIGN_OR_RETURN(const StepSizes sizes, fill_step(plan, limits(options_.max_batch_tokens),
                                                           host_inputs_, inputs_));
  num_sequences_ = sizes.sequences;
  if (device_ == nullptr) {
    return {};
  }
  NIBBLE_RETURN_IF_ERROR(device_->fill(work_.bad_rows, kNoBadRowByte,
                                       std::int64_t{4} * (config_.num_layers + 1), exec_.stream));
  return device_->copy(input_block_, host_block, sizes.used_bytes, exec_.stream);
}

// A step in which every sequence computes one row whose logits are wanted: what is enqueued depends
// on the numbers below alone, so that a captured graph can be replayed.
bool GptOss::can_replay() const {
  if (device_ == nullptr || tap_ || num_logit_rows_ != rows_ || num_sequences_ != rows_) {
    return false;
  }
  const std::span sequences(host_inputs_.sequences[0], static_cast<std::size_t>(num_sequences_));
  return std::all_of(sequences.begin(), sequences.end(),
                     [](const auto& sequence) { return sequence.num_rows == 1; });
}

Status GptOss::compute() {
  if (!can_replay()) {
    return run_layers();
  }
  const bool is_decode_step = rows_ == 1 && decode_step_.is_chosen();
  std::int32_t last = 0;
  for (std::int32_t i = 0; i < num_sequences_; ++i) {
    last = std::max(last, host_inputs_.sequences[0][i].first_position);
  }
  const auto chunks = static_cast<std::uint32_t>(last / kernels::kGpuChunkKeys + 1);
  if (graphs_.size() > kMostGraphs) {
    graphs_.clear();
  }
  // The persistent kernel finds the position in its inputs: one graph, of no chunks.
  StepGraph& step = graphs_[{rows_, is_decode_step ? 0 : std::bit_ceil(chunks)}];
  if (!step.has_run) {  // loads the kernels, which a capture may not
    step.has_run = true;
    return enqueue(is_decode_step);
  }
  if (step.graph.get() == nullptr) {
    const std::uint64_t before = trace_.seen();
    NIBBLE_RETURN_IF_ERROR(device_->begin_capture(exec_.stream));
    const Status enqueued = enqueue(is_decode_step);
    Result<Device::Graph> captured = device_->end_capture(exec_.stream);
    NIBBLE_RETURN_IF_ERROR(enqueued);
    NIBBLE_ASSIGN_OR_RETURN(step.graph, std::move(captured));
    step.kernels = trace_.seen() & ~before;
  }
  trace_.add(step.kernels);
  return device_->launch(step.graph, exec_.stream);
}

Status GptOss::enqueue(bool is_decode_step) {
  if (!is_decode_step) {
    return run_layers();
  }
  return decode_step_.run(*device_, config_,
                          {.arrays = arrays_,
                           .cache = cache_,
                           .inputs = inputs_,
                           .work = work_,
                           .concentration = concentration_},
                          kernels_.decode_step, exec_);
}

Status GptOss::run_layers() {
  NIBBLE_RETURN_IF_ERROR(kernels_.gather_rows({.table = arrays_.embedding.data,
                                               .ids = inputs_.token_ids,
                                               .out = work_.residual,
                                               .rows = rows_,
                                               .cols = config_.hidden,
                                               .table_rows = config_.vocab,
                                               .dtype = arrays_.embedding.dtype},
                                              exec_));
  for (std::size_t index = 0; index < arrays_.layers.size(); ++index) {
    NIBBLE_RETURN_IF_ERROR(attention_block(index));
    NIBBLE_RETURN_IF_ERROR(tap(TapPlace::kAttention, index, work_.residual, config_.hidden));
    NIBBLE_RETURN_IF_ERROR(moe_block(index));
    NIBBLE_RETURN_IF_ERROR(tap(TapPlace::kExperts, index, work_.residual, config_.hidden));
  }
  return head();
}

Status GptOss::start(const BatchPlan& plan, const SampleBatch& batch) {
  NIBBLE_CHECK(device_ != nullptr && ring_.num_started() < kMostStartedSteps);
  NIBBLE_RETURN_IF_ERROR(check(plan, num_sampled_));
  NIBBLE_ASSIGN_OR_RETURN(
      const SampleBlock block,
      SampleBlock::fill(batch, static_cast<std::int32_t>(plan.logit_rows.size()),
                        ring_.sample_block(), work_.sample_block));
  NIBBLE_RETURN_IF_ERROR(begin(plan));
  const bool names_tokens = std::any_of(plan.token_ids.begin(), plan.token_ids.end(),
                                        [](std::int32_t id) { return id < 0; });
  if (names_tokens) {
    NIBBLE_RETURN_IF_ERROR(kernels_.pick_ids({.ids = inputs_.token_ids,
                                              .sampled = work_.sampled,
                                              .count = rows_,
                                              .num_sampled = num_sampled_},
                                             exec_));
  }
  logits_ = work_.logits;
  NIBBLE_RETURN_IF_ERROR(compute());
  return sample(block);
}

Status GptOss::sample(const SampleBlock& block) {
  num_sampled_ = num_logit_rows_;
  NIBBLE_RETURN_IF_ERROR(
      device_->copy(work_.sample_block, ring_.sample_block(), block.used_bytes, exec_.stream));
  NIBBLE_RETURN_IF_ERROR(kernels_.sample_rows({.logits = work_.logits,
                                               .rows = block.rows,
                                               .counts = block.counts,
                                               .logit_bias = block.logit_bias,
                                               .ids = work_.sampled,
                                               .num_rows = num_logit_rows_,
                                               .vocab = config_.vocab},
                                              exec_));
  return ring_.send_back(work_.sampled, num_logit_rows_, work_.bad_rows, exec_.stream);
}

Result<std::span<const std::int32_t>> GptOss::finish() {
  NIBBLE_ASSIGN_OR_RETURN(const StepRing::Done done, ring_.finish());
  NIBBLE_RETURN_IF_ERROR(check_routers(done.bad_rows));
  return done.tokens;
}

Status GptOss::copy_logits(std::int32_t logit_row, std::span<float> logits) {
  NIBBLE_CHECK(ring_.num_started() == 0 && logit_row < num_sampled_, logit_row);
  const std::int64_t bytes = std::int64_t{4} * config_.vocab;
  NIBBLE_RETURN_IF_ERROR(device_->copy(
      ring_.logits(), work_.logits + std::int64_t{logit_row} * config_.vocab, bytes, exec_.stream));
  NIBBLE_RETURN_IF_ERROR(device_->wait(exec_.stream));
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
  std::int32_t* const bad_rows = ring_.bad_rows();
  const std::int64_t bad_bytes = std::int64_t{4} * (config_.num_layers + 1);
  const std::int64_t bytes = std::int64_t{4} * num_logit_rows_ * config_.vocab;
  NIBBLE_RETURN_IF_ERROR(device_->copy(bad_rows, work_.bad_rows, bad_bytes, exec_.stream));
  if (!logits.empty() && bytes > 0) {
    NIBBLE_RETURN_IF_ERROR(device_->copy(ring_.logits(), work_.logits, bytes, exec_.stream));
  }
  NIBBLE_RETURN_IF_ERROR(device_->wait(exec_.stream));
  NIBBLE_RETURN_IF_ERROR(check_routers(bad_rows));
  if (!logits.empty()) {
    std::memcpy(logits.data(), ring_.logits(), static_cast<std::size_t>(bytes));
  }
  return {};
}

Status GptOss::tap(TapPlace place, std::size_t layer, float* values, std::int32_t cols) {
  if (!tap_) {
    return {};
  }
  const auto count = static_cast<std::size_t>(rows_) * static_cast<std::size_t>(cols);
  const auto index = static_cast<std::int32_t>(layer);
  if (device_ == nullptr) {
    tap_(place, index, {values, count});
    return {};
  }
  std::vector<float> host(count);
  const auto bytes = static_cast<std::int64_t>(count * sizeof(float));
  NIBBLE_RETURN_IF_ERROR(device_->copy(host.data(), values, bytes, exec_.stream));
  NIBBLE_RETURN_IF_ERROR(device_->wait(exec_.stream));
  tap_(place, index, host);
  NIBBLE_RETURN_IF_ERROR(device_->copy(values, host.data(), bytes, exec_.stream));
  return device_->wait(exec_.stream);
}

Status GptOss::norm(const float* x, const float* weight, std::int32_t rows) {
  return kernels_.rms_norm({.x = x,
                            .weight = weight,
                            .out = work_.normed,
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

Status GptOss::attention_block(std::size_t index) {
  const LayerArrays& layer = arrays_.layers[index];
  NIBBLE_RETURN_IF_ERROR(norm(work_.residual, layer.attention_norm, rows_));
  const std::int32_t q_width = config_.num_heads * config_.head_dim;
  const std::int32_t kv_width = config_.num_kv_heads * config_.head_dim;
  const float* bias = layer.qkv_bias;
  const GemmPart qkv[] = {{layer.q.data, bias, q_width},
                          {layer.k.data, bias + q_width, kv_width},
                          {layer.v.data, bias + q_width + kv_width, kv_width}};
  NIBBLE_RETURN_IF_ERROR(
      project(work_.normed, qkv, layer.q.dtype, config_.hidden, work_.qkv, false));
  NIBBLE_RETURN_IF_ERROR(attend(index));
  const GemmPart o[] = {{layer.o.data, layer.o_bias, config_.hidden}};
  return project(work_.attention, o, layer.o.dtype, q_width, work_.residual, true);
}

Status GptOss::attend(std::size_t index) {
  const bool is_window = config_.is_window_layer[index];
  const int group = static_cast<int>(is_window ? CacheGroup::kWindow : CacheGroup::kFull);
  const LayerCache& cache = cache_.layers[index];
  NIBBLE_RETURN_IF_ERROR(kernels_.rope_store({.qkv = work_.qkv,
                                              .positions = inputs_.positions,
                                              .slots = inputs_.slots[group],
                                              .inv_freq = arrays_.inv_freq,
                                              .q_out = work_.q,
                                              .k_cache = cache.k,
                                              .v_cache = cache.v,
                                              .k_scales = cache.k_scales,
                                              .v_scales = cache.v_scales,
                                              .rows = rows_,
                                              .num_heads = config_.num_heads,
                                              .num_kv_heads = config_.num_kv_heads,
                                              .head_dim = config_.head_dim,
                                              .page_size = options_.page_size,
                                              .concentration = concentration_,
                                              .q_dtype = options_.activation,
                                              .kv_dtype = options_.kv_dtype},
                                             exec_));
  return kernels_.attention(
      {.q = work_.q,
       .k_cache = cache.k,
       .v_cache = cache.v,
       .k_scales = cache.k_scales,
       .v_scales = cache.v_scales,
       .sinks = arrays_.layers[index].sinks,
       .out = work_.attention,
       .sequences = {host_inputs_.sequences[group], static_cast<std::size_t>(num_sequences_)},
       .device_sequences = inputs_.sequences[group],
       .num_heads = config_.num_heads,
       .num_kv_heads = config_.num_kv_heads,
       .head_dim = config_.head_dim,
       .page_size = options_.page_size,
       .window = is_window ? config_.window : 0,
       .scale = 1.0F / std::sqrt(static_cast<float>(config_.head_dim)),
       .q_dtype = options_.activation,
       .kv_dtype = options_.kv_dtype,
       .workspace = work_.scratch},
      exec_);
}

Status GptOss::moe_block(std::size_t index) {
  const LayerArrays& layer = arrays_.layers[index];
  NIBBLE_RETURN_IF_ERROR(norm(work_.residual, layer.mlp_norm, rows_));
  const GemmPart router[] = {{layer.router.data, layer.router_bias, config_.num_experts}};
  NIBBLE_RETURN_IF_ERROR(project(work_.normed, router, layer.router.dtype, config_.hidden,
                                 work_.router_logits, false));
  NIBBLE_RETURN_IF_ERROR(tap(TapPlace::kRouter, index, work_.router_logits, config_.num_experts));
  const Status routed =
      kernels_.top_k({.logits = work_.router_logits,
                      .ids = work_.expert_ids,
                      .weights = work_.expert_weights,
                      .rows = rows_,
                      .num_valid_rows = rows_,
                      .num_experts = config_.num_experts,
                      .top_k = config_.top_k,
                      .bad_row = device_ == nullptr ? nullptr : work_.bad_rows + index},
                     exec_);
  if (!routed.ok()) {
    return error(routed.code(), "layer {}: {}", index, routed.message());
  }
  if (layer.gate_up_tiles.values != nullptr) {
    return sorted_experts(layer);
  }
  return kernels_.moe({.x = work_.normed,
                       .ids = work_.expert_ids,
                       .weights = work_.expert_weights,
                       .out = work_.residual,
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
                       .inputs = expert_inputs(options_),
                       .workspace = work_.scratch},
                      exec_);
}

Status GptOss::sorted_experts(const LayerArrays& layer) {
  NIBBLE_RETURN_IF_ERROR(kernels_.sort_rows({.ids = work_.expert_ids,
                                             .slice_offs = work_.slice_offs,
                                             .gather = work_.gather,
                                             .scatter = work_.scatter,
                                             .num_tokens = rows_,
                                             .top_k = config_.top_k,
                                             .num_experts = config_.num_experts},
                                            exec_));
  return kernels_.moe_tiles({.x = reinterpret_cast<const formats::Bf16*>(work_.normed),
                             .slice_offs = work_.slice_offs,
                             .gather = work_.gather,
                             .scatter = work_.scatter,
                             .weights = work_.expert_weights,
                             .out = work_.residual,
                             .gate_up = layer.gate_up_tiles,
                             .down = layer.down_tiles,
                             .num_tokens = rows_,
                             .hidden = config_.hidden,
                             .intermediate = config_.intermediate,
                             .num_experts = config_.num_experts,
                             .top_k = config_.top_k,
                             .alpha = config_.swiglu_alpha,
                             .limit = config_.swiglu_limit,
                             .workspace = work_.scratch},
                            exec_);
}

Status GptOss::head() {
  if (num_logit_rows_ == 0) {
    return {};
  }
  NIBBLE_RETURN_IF_ERROR(kernels_.gather_rows({.table = work_.residual,
                                               .ids = inputs_.logit_rows,
                                               .out = work_.logit_inputs,
                                               .rows = num_logit_rows_,
                                               .cols = config_.hidden,
                                               .table_rows = rows_,
                                               .dtype = DType::kF32},
                                              exec_));
  NIBBLE_RETURN_IF_ERROR(norm(work_.logit_inputs, arrays_.final_norm, num_logit_rows_));
  const GemmPart parts[] = {{arrays_.head.data, nullptr, config_.vocab}};
  rows_ = num_logit_rows_;
  NIBBLE_RETURN_IF_ERROR(
      project(work_.normed, parts, arrays_.head.dtype, config_.hidden, logits_, false));
  return tap(TapPlace::kHead, arrays_.layers.size(), logits_, config_.vocab);
}

}  // namespace

Result<std::unique_ptr<Model>> make_gpt_oss(ModelConfig config, const ModelOptions& options,
                                            ModelWeights weights) {
  return GptOss::create(std::move(config), options, std::move(weights));
}

}  // namespace nibble::model
