#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/flags.h"
#include "cli/kernel_list.h"
#include "cli/model_path.h"
#include "cli/parse.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace nibble::cli {
namespace {

using Json = nlohmann::ordered_json;
using commands::DoctorModel;
using commands::DoctorRates;
using commands::DoctorReport;
using commands::OffloadPlan;

constexpr std::int32_t kNoSplit = -2;  // --n-cpu-moe not given

struct DoctorFlags {
  std::string model;
  std::string device = "auto";
  std::string kv_cache = "auto";
  std::int32_t max_num_seqs = 1;
  std::int32_t max_batch_tokens = 0;
  std::int64_t max_model_len = 0;
  std::int32_t num_threads = 0;
  std::int32_t n_cpu_moe = kNoSplit;
  std::optional<float> gpu_gib;
  std::optional<float> gpu_gb_s;
  bool is_json = false;
};

Json rate_json(const commands::Rate& rate) {
  return {{"one_core", rate.one_core}, {"all_cores", rate.all_cores}};
}

Json rates_json(const DoctorRates& rates) {
  return {{"num_threads", rates.num_threads}, {"read_bytes_per_s", rate_json(rates.read)},
          {"f32_isa", rates.f32_isa},         {"f32_flops", rate_json(rates.f32)},
          {"bf16_isa", rates.bf16_isa},       {"bf16_flops", rate_json(rates.bf16)},
          {"int8_isa", rates.int8_isa},       {"int8_ops", rate_json(rates.int8)}};
}

Json model_json(const DoctorModel& model) {
  return {{"name", model.name},
          {"token_bytes", model.token.bytes()},
          {"token_expert_bytes", model.token.expert_bytes},
          {"token_attention_bytes", model.token.attention_bytes},
          {"token_head_bytes", model.token.head_bytes},
          {"token_flops", model.token.flops},
          {"weight_bytes", model.weight_bytes},
          {"cache_bytes", model.cache_bytes},
          {"max_model_len", model.max_model_len},
          {"available_bytes", model.available_bytes},
          {"memory",
           {{"weights", model.memory.weight_bytes},
            {"cache", model.memory.cache_bytes},
            {"step", model.memory.step_bytes},
            {"reserve", model.memory.reserve_bytes},
            {"total", model.memory.total_bytes()}}},
          {"fits", model.fits},
          {"refusal", model.refusal},
          {"tokens_per_second", model.tokens_per_second},
          {"limit", model.limit}};
}

Json offload_json(const OffloadPlan& plan) {
  return {{"n_cpu_moe", plan.n_cpu_moe},
          {"gpu_weight_bytes", plan.gpu_weight_bytes},
          {"gpu_cache_bytes", plan.gpu_cache_bytes},
          {"gpu_reserve_bytes", plan.gpu_reserve_bytes},
          {"gpu_total_bytes", plan.gpu_total_bytes},
          {"host_total_bytes", plan.host_total_bytes},
          {"gpu_ms", plan.gpu_ms},
          {"host_ms", plan.host_ms},
          {"tokens_per_second", plan.tokens_per_second}};
}

std::string as_json(const DoctorReport& report) {
  const Capabilities& found = report.capabilities;
  Json items = Json::array();
  for (const Capability& item : found.items) {
    items.push_back({{"name", item.name},
                     {"version", item.version},
                     {"place", item.place},
                     {"usable", item.is_usable},
                     {"reason", item.reason}});
  }
  Json json = {{"can_run", found.can_run},
               {"backend", found.backend},
               {"explanation", found.explanation},
               {"items", items},
               {"kernels", kernel_list(found.kernels)},
               {"device", report.device},
               {"rates", rates_json(report.rates)}};
  if (report.gpu) {
    json["gpu_rates"] = {{"read_bytes_per_s", report.gpu->read},
                         {"bf16_flops", report.gpu->bf16},
                         {"remark", report.gpu->reason}};
  }
  if (report.model) {
    json["model"] = model_json(*report.model);
  }
  if (report.offload) {
    json["offload"] = offload_json(*report.offload);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string item_table(const Capabilities& found) {
  Table table({{"what"}, {"usable"}, {"version"}, {"where"}, {"remark"}});
  for (const Capability& item : found.items) {
    table.add_row(
        {item.name, item.is_usable ? "yes" : "no", item.version, item.place, item.reason});
  }
  return table.text();
}

std::string kernel_table(const Capabilities& found) {
  Table table({{"family"}, {"kernel"}, {"backend"}, {"needs"}, {"runs here"}, {"remark"}});
  for (const KernelCapability& kernel : found.kernels) {
    table.add_row({kernel.family, kernel.name, kernel.backend, kernel.needs,
                   kernel.is_runnable ? "yes" : "no", kernel.reason});
  }
  return table.text();
}

std::string giga(double value, const char* unit) {
  return fmt::format("{:.1f} {}", value / 1e9, unit);
}

std::string rate_table(const DoctorRates& rates) {
  Table table({{"measured now"},
               {"one core", Table::Align::kRight},
               {fmt::format("{} threads", rates.num_threads), Table::Align::kRight}});
  const auto add = [&](const std::string& name, const commands::Rate& rate, const char* unit) {
    table.add_row({name, giga(rate.one_core, unit), giga(rate.all_cores, unit)});
  };
  add("memory read", rates.read, "GB/s");
  if (!rates.f32_isa.empty()) {
    add("f32 dot products, " + rates.f32_isa, rates.f32, "GFLOP/s");
  }
  if (!rates.bf16_isa.empty()) {
    add("bf16 dot products, " + rates.bf16_isa, rates.bf16, "GFLOP/s");
  }
  if (!rates.int8_isa.empty()) {
    add("int8 dot products, " + rates.int8_isa, rates.int8, "GOP/s");
  }
  return table.text();
}

std::string gpu_table(const commands::DoctorGpu& gpu) {
  Table table({{"measured now"}, {"gpu", Table::Align::kRight}});
  table.add_row({"memory read", giga(gpu.read, "GB/s")});
  table.add_row({"bf16 products", giga(gpu.bf16, "GFLOP/s")});
  return table.text() + (gpu.reason.empty() ? "" : gpu.reason + "\n");
}

std::string parts_text(const MemoryParts& memory) {
  return fmt::format(
      "{} = weights {} + cache {} + {}{} kept free", bytes_text(memory.total_bytes()),
      bytes_text(memory.weight_bytes), bytes_text(memory.cache_bytes),
      memory.step_bytes > 0
          ? fmt::format("a step's activations and logits {} + ", bytes_text(memory.step_bytes))
          : "",
      bytes_text(memory.reserve_bytes));
}

std::string model_table(const DoctorModel& model) {
  Table table({{""}, {""}});
  table.add_row({"model", model.name});
  table.add_row({"weights", bytes_text(model.weight_bytes)});
  table.add_row({"memory", fmt::format("{} available: {}", bytes_text(model.available_bytes),
                                       model.fits ? "fits" : "does not fit")});
  if (model.fits) {
    table.add_row({"taken", parts_text(model.memory)});
    table.add_row({"cache", fmt::format("{} for {} tokens of context",
                                        bytes_text(model.cache_bytes), model.max_model_len)});
  }
  table.add_row(
      {"one token reads",
       fmt::format("{} (experts {}, attention {}, head {})", bytes_text(model.token.bytes()),
                   bytes_text(model.token.expert_bytes), bytes_text(model.token.attention_bytes),
                   bytes_text(model.token.head_bytes))});
  table.add_row({"decode", fmt::format("at most {:.1f} tokens/s, set by {}",
                                       model.tokens_per_second, model.limit)});
  return table.text();
}

std::string offload_table(const OffloadPlan& plan) {
  Table table({{""}, {""}});
  table.add_row({"split", fmt::format("--n-cpu-moe {}: experts of {} layers in host memory",
                                      plan.n_cpu_moe, plan.n_cpu_moe)});
  table.add_row(
      {"on the GPU",
       fmt::format("{} (weights {}, cache {}, reserve {})", bytes_text(plan.gpu_total_bytes),
                   bytes_text(plan.gpu_weight_bytes), bytes_text(plan.gpu_cache_bytes),
                   bytes_text(plan.gpu_reserve_bytes))});
  table.add_row({"on the host", bytes_text(plan.host_total_bytes)});
  table.add_row(
      {"one token",
       fmt::format("{}{:.2f} ms of host memory",
                   plan.gpu_ms > 0.0 ? fmt::format("{:.2f} ms of GPU memory, ", plan.gpu_ms)
                                     : "GPU's part unknown without --gpu-bandwidth, ",
                   plan.host_ms)});
  if (plan.tokens_per_second > 0.0) {
    table.add_row({"decode", fmt::format("at most {:.1f} tokens/s", plan.tokens_per_second)});
  }
  return table.text();
}

std::string as_text(const DoctorReport& report) {
  const Capabilities& found = report.capabilities;
  std::string text = item_table(found);
  text += found.kernels.empty() ? "" : "\n" + kernel_table(found);
  text += "\n" + rate_table(report.rates);
  text += report.gpu ? "\n" + gpu_table(*report.gpu) : "";
  text += report.model ? "\n" + model_table(*report.model) : "";
  text += report.offload ? "\n" + offload_table(*report.offload) : "";
  text += "\na model is computed on " + report.device + "\n";
  text += found.can_run ? fmt::format("runs on: {} ({})\n", found.backend, found.explanation)
                        : fmt::format("nothing can run: {}\n", found.explanation);
  return text;
}

Outcome verdict(const DoctorReport& report) {
  if (!report.capabilities.can_run) {
    return {Exit::kUnsupported, report.capabilities.explanation};
  }
  if (!report.offload_refusal.ok()) {
    return failed(report.offload_refusal, During::kHardware);
  }
  if (report.model && !report.offload && !report.model->fits) {
    return {Exit::kDoesNotFit, fmt::format("{}: {}", report.model->name, report.model->refusal)};
  }
  return done();
}

Outcome doctor(Host& host, const DoctorFlags& flags) {
  commands::DoctorOptions options{.model = flags.model,
                                  .max_model_len = static_cast<std::int32_t>(flags.max_model_len),
                                  .num_threads = flags.num_threads,
                                  .device = device_choice(flags.device),
                                  .kv_cache = kv_cache_of(flags.kv_cache),
                                  .max_num_seqs = flags.max_num_seqs,
                                  .max_batch_tokens = flags.max_batch_tokens};
  if (flags.n_cpu_moe != kNoSplit) {
    if (flags.model.empty()) {
      return wrong_usage("--n-cpu-moe: name the MODEL that is to be split");
    }
    options.n_cpu_moe = flags.n_cpu_moe;
    options.gpu_bytes = static_cast<std::int64_t>(double{flags.gpu_gib.value_or(0.0F)} * 0x1p30);
    options.gpu_rate = double{flags.gpu_gb_s.value_or(0.0F)} * 1e9;
  }
  const std::vector<std::string> presets = host.backend.preset_names();
  const bool is_preset = std::find(presets.begin(), presets.end(), flags.model) != presets.end();
  if (!flags.model.empty() && !is_preset) {
    Result<std::string> folder = find_model(flags.model, model_places(host.executable));
    if (!folder) {
      return failed(folder.error(), During::kLoad);
    }
    options.model = std::move(*folder);
  }
  const Result<DoctorReport> report = host.backend.doctor(options);
  if (!report) {
    return failed_to_load(host, report.error(), options.device);
  }
  host.out.write(flags.is_json ? as_json(*report) : as_text(*report));
  return verdict(*report);
}

}  // namespace

void add_doctor(CLI::App& app, Invocation& invocation) {
  CLI::App& verb = add_verb(
      app,
      {"doctor", "what this machine and build can do, how fast, and what for a model",
       "  nibble doctor                      hardware, libraries, kernels, measured limits\n"
       "  nibble doctor gpt-oss-20b          a published shape, no files needed\n"
       "  nibble doctor MODEL --json         will it fit, how fast can it be\n"
       "  nibble doctor MODEL --device cuda --max-num-seqs 256\n"
       "                                     on the GPU: its memory by parts, its limits\n"
       "  nibble doctor gpt-oss-120b --n-cpu-moe -1 --gpu-memory 24 --gpu-bandwidth 1000\n"
       "                                     on a GPU of 24 GiB, experts partly in host memory\n"});
  auto flags = std::make_shared<DoctorFlags>();
  add_model_name(verb, flags->model);
  add_count(verb,
            {"-c,--max-model-len,--ctx-size", "N",
             "tokens of context to hold (default: the model's limit)"},
            {0, std::numeric_limits<std::int32_t>::max()}, flags->max_model_len);
  add_device(verb, flags->device);
  add_kv_cache(verb, flags->kv_cache);
  add_integer(verb, {"--max-num-seqs", "N", "sequences that share the cache (default: 1)"},
              {1, 4096}, flags->max_num_seqs);
  add_integer(
      verb,
      {"--max-num-batched-tokens", "N", "tokens of one step (default: 512; up to 8192 on a GPU)"},
      {1, 1 << 16}, flags->max_batch_tokens);
  add_integer(verb, {"-t,--threads", "N", "processors to measure with (default: all)"}, {0, 4096},
              flags->num_threads);
  add_integer(verb,
              {"--n-cpu-moe", "N",
               "plan a GPU with the experts of N layers in host memory; -1: the fewest that fit"},
              {-1, 4096}, flags->n_cpu_moe);
  add_real(verb, {"--gpu-memory", "GIB", "memory of that GPU (default: of the first one found)"},
           {0.0, 1e6}, flags->gpu_gib);
  add_real(verb, {"--gpu-bandwidth", "GB/S", "its read bandwidth, to price its part"}, {0.0, 1e6},
           flags->gpu_gb_s);
  add_switch(verb, "--json", flags->is_json, "one JSON object with everything")->group("Output");
  set_action(verb, invocation, [&invocation, flags] { return doctor(invocation.host, *flags); });
}

}  // namespace nibble::cli
