#include "api/commands/doctor.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "api/commands/presets.h"
#include "api/device_choice.h"
#include "api/memory_fit.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/probe/device_probe.h"
#include "kernels/probe/probe.h"
#include "model/config.h"
#include "model/tensor_list.h"
#include "tensor/device.h"
#include "tensor/machine_facts.h"
#include "weights/checkpoint.h"

namespace nibble::commands {
namespace {

constexpr std::int64_t kBf16Bytes = 2;

// Large enough that no cache helps, small enough to touch in a fraction of a second.
std::int64_t probe_bytes(std::int64_t available_bytes) {
  const std::int64_t cache = std::max<std::int64_t>(0, ::sysconf(_SC_LEVEL3_CACHE_SIZE));
  const std::int64_t wanted = std::clamp<std::int64_t>(4 * cache, 128 << 20, std::int64_t{1} << 31);
  return std::max<std::int64_t>(1 << 20, std::min(wanted, available_bytes / 4));
}

Rate dot_rate(ThreadPool& one, ThreadPool& all, kernels::CpuIsa isa) {
  return {kernels::dot_peak(one, isa), kernels::dot_peak(all, isa)};
}

std::string name_of(kernels::CpuIsa isa) {
  return isa == kernels::CpuIsa::kAny ? "" : kernels::isa_name(isa);
}

DoctorRates measure(const MachineFacts& machine, std::int32_t num_threads) {
  ThreadPool one(1);
  ThreadPool all(num_threads);
  const std::int64_t bytes = probe_bytes(machine.available_bytes);
  const kernels::CpuIsa f32 = kernels::best_f32_isa(machine.cpu);
  const kernels::CpuIsa bf16 = kernels::best_bf16_isa(machine.cpu);
  const kernels::CpuIsa int8 = kernels::best_int8_isa(machine.cpu);
  DoctorRates rates;
  rates.num_threads = all.size();
  rates.read = {kernels::read_bandwidth(one, bytes), kernels::read_bandwidth(all, bytes)};
  rates.f32_isa = name_of(f32);
  rates.f32 = dot_rate(one, all, f32);
  rates.bf16_isa = name_of(bf16);
  rates.bf16 = dot_rate(one, all, bf16);
  rates.int8_isa = name_of(int8);
  rates.int8 = dot_rate(one, all, int8);
  return rates;
}

// Of the first GPU, over more than its caches hold. A rate that cannot be measured stays 0.
DoctorGpu measure_gpu() {
  constexpr std::int64_t kBytes = std::int64_t{1} << 30;
  DoctorGpu gpu;
  const Result<std::unique_ptr<Device>> device = open_cuda(0);
  if (!device) {
    gpu.reason = device.error().message();
    return gpu;
  }
  const auto keep = [&](const Result<double>& rate) {
    gpu.reason = rate ? gpu.reason : rate.error().message();
    return rate ? *rate : 0.0;
  };
  gpu.read = keep(kernels::device_read_bandwidth(**device, kBytes));
  gpu.bf16 = keep(kernels::device_bf16_peak(**device));
  return gpu;
}

struct Shape {
  model::ModelConfig config;
  std::int64_t weight_bytes = 0;
  model::ExpertFormat experts = model::ExpertFormat::kMxfp4;
};

// Of a checkpoint that is not there.
std::int64_t listed_bytes(const model::ModelConfig& config, model::ExpertFormat experts) {
  std::int64_t bytes = 0;
  for (const weights::TensorSpec& tensor : model::tensor_list(config, experts)) {
    bytes += TensorView{nullptr, tensor.dtypes.front(), tensor.shape}.bytes();
  }
  return bytes;
}

Result<Shape> shape_of(const std::string& name) {
  Shape shape;
  if (const std::optional<Preset> preset = find_preset(name)) {
    shape.config = preset->config;
    shape.experts = model::configured_expert_format(preset->config);
    shape.weight_bytes = listed_bytes(shape.config, shape.experts);
    return shape;
  }
  NIBBLE_ASSIGN_OR_RETURN(shape.config, model::load_config(name));
  NIBBLE_ASSIGN_OR_RETURN(const weights::Checkpoint checkpoint, weights::Checkpoint::open(name));
  NIBBLE_ASSIGN_OR_RETURN(shape.experts, model::detect_expert_format(shape.config, checkpoint));
  shape.weight_bytes = checkpoint.file_bytes();
  return shape;
}

// All experts of one layer with their biases, as stored.
std::int64_t layer_expert_bytes(const model::ModelConfig& config, model::ExpertFormat experts) {
  const std::int64_t elems =
      std::int64_t{config.num_experts} * 3 * config.hidden * config.intermediate;
  const std::int64_t biases =
      std::int64_t{config.num_experts} * (2 * config.intermediate + config.hidden);
  return model::expert_bytes(elems, experts) + biases * kBf16Bytes;
}

void add_offload(const DoctorOptions& options, const Shape& shape, std::int64_t host_bytes,
                 DoctorReport& report) {
  const DoctorModel& model = *report.model;
  const std::int32_t max_model_len =
      options.max_model_len > 0 ? std::min(options.max_model_len, shape.config.max_position)
                                : shape.config.max_position;
  const std::int64_t experts = layer_expert_bytes(shape.config, shape.experts);
  std::int64_t gpu_bytes = options.gpu_bytes;
  if (gpu_bytes == 0) {
    MachineFacts machine;
    probe_gpu(machine);
    gpu_bytes = machine.gpus.empty() ? 0 : machine.gpus.front().memory_bytes;
  }
  const Result<OffloadPlan> plan =
      plan_offload({.name = model.name,
                    .num_layers = shape.config.num_layers,
                    .layer_expert_bytes = experts,
                    .other_bytes = model.weight_bytes - shape.config.num_layers * experts,
                    .cache_bytes = cache_bytes(shape.config, max_model_len),
                    .token_expert_bytes = model.token.expert_bytes,
                    .token_other_bytes = model.token.attention_bytes + model.token.head_bytes,
                    .gpu_bytes = gpu_bytes,
                    .host_bytes = host_bytes,
                    .gpu_rate = options.gpu_rate,
                    .host_rate = report.rates.read.all_cores},
                   *options.n_cpu_moe);
  if (plan.has_value()) {
    report.offload = *plan;
  } else {
    report.offload_refusal = plan.error();
  }
}

}  // namespace

TokenCost token_cost(const model::ModelConfig& config, model::ExpertFormat experts) {
  const std::int64_t hidden = config.hidden;
  const std::int64_t layers = config.num_layers;
  const std::int64_t q = std::int64_t{config.num_heads} * config.head_dim;
  const std::int64_t kv = std::int64_t{config.num_kv_heads} * config.head_dim;
  const std::int64_t expert_elems = layers * config.top_k * 3 * hidden * config.intermediate;
  const std::int64_t attention_elems =
      layers * hidden * (2 * q + 2 * kv + std::int64_t{config.num_experts});
  const std::int64_t head_elems = hidden * config.vocab;
  TokenCost cost;
  cost.expert_bytes = model::expert_bytes(expert_elems, experts);
  cost.attention_bytes = attention_elems * kBf16Bytes;
  cost.head_bytes = head_elems * kBf16Bytes;
  cost.flops = 2 * (expert_elems + attention_elems + head_elems);
  return cost;
}

std::int64_t cache_bytes(const model::ModelConfig& config, std::int32_t max_model_len) {
  const std::int64_t token_bytes =
      2 * std::int64_t{config.num_kv_heads} * config.head_dim * kBf16Bytes;
  std::int64_t tokens = 0;
  for (const bool is_window : config.is_window_layer) {
    tokens += is_window ? std::min(config.window, max_model_len) : max_model_len;
  }
  return tokens * token_bytes;
}

void judge_fit(DoctorModel& model, const model::ModelConfig& config, const DoctorOptions& options,
               MemoryOf memory) {
  const EngineOptions engine{.kv_cache = options.kv_cache,
                             .max_model_len = options.max_model_len,
                             .max_num_seqs = options.max_num_seqs,
                             .max_batch_tokens = options.max_batch_tokens};
  const Result<EnginePlan> plan =
      plan_engine(engine, config, model.weight_bytes, model.available_bytes, memory);
  model.fits = plan.has_value();
  if (!model.fits) {
    model.refusal = plan.error().message();
    return;
  }
  model.max_model_len = plan->model.max_position;
  model.memory = plan->memory;
  model.cache_bytes = plan->memory.cache_bytes;
}

void predict(DoctorModel& model, double read, double peak) {
  const double by_memory = read / static_cast<double>(model.token.bytes());
  const double by_arithmetic = peak / static_cast<double>(model.token.flops);
  const bool is_arithmetic = peak > 0.0 && by_arithmetic < by_memory;
  model.tokens_per_second = is_arithmetic ? by_arithmetic : by_memory;
  model.limit = is_arithmetic ? "arithmetic" : "memory bandwidth";
}

Result<DoctorReport> doctor(const DoctorOptions& options) {
  DoctorReport report;
  Shape shape;
  if (!options.model.empty()) {
    NIBBLE_ASSIGN_OR_RETURN(shape, shape_of(options.model));
  }
  NIBBLE_ASSIGN_OR_RETURN(const ChosenDevice device, choose_device(options.device));
  report.device = device.reason;
  report.is_on_gpu = device.kernels == model::KernelChoice::kCuda;
  report.capabilities = capabilities();
  MachineFacts machine;
  probe_host(machine);
  report.rates = measure(machine, options.num_threads);
  if (report.is_on_gpu) {
    report.gpu = measure_gpu();
  }
  if (!options.model.empty()) {
    DoctorModel& model = report.model.emplace();
    model.name = options.model;
    model.token = token_cost(shape.config, shape.experts);
    model.weight_bytes = shape.weight_bytes;
    model.available_bytes = report.is_on_gpu ? device.free_bytes : machine.available_bytes;
    judge_fit(model, shape.config, options, report.is_on_gpu ? MemoryOf::kDevice : MemoryOf::kHost);
    if (report.gpu) {
      predict(model, report.gpu->read, report.gpu->bf16);
    } else {
      predict(model, report.rates.read.all_cores,
              std::max(report.rates.bf16.all_cores, report.rates.f32.all_cores));
    }
    if (options.n_cpu_moe.has_value()) {
      add_offload(options, shape, machine.available_bytes, report);
    }
  }
  return report;
}

}  // namespace nibble::commands
