// `nibble doctor`: what this machine and build can do, how fast memory and arithmetic are right
// now, and what that means for a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "api/commands/offload.h"
#include "api/memory_fit.h"
#include "nibble/capabilities.h"
#include "nibble/engine.h"
#include "nibble/status.h"

namespace nibble::model {
struct ModelConfig;
enum class ExpertFormat : std::uint8_t;
}  // namespace nibble::model

namespace nibble::commands {

struct DoctorOptions {
  std::string model;               // a checkpoint folder or one of preset_names(); empty: none
  std::int32_t max_model_len = 0;  // tokens of context to hold; 0: as many as fit
  std::int32_t num_threads = 0;    // 0: all available
  DeviceChoice device = DeviceChoice::kAuto;
  KvCacheType kv_cache = KvCacheType::kAuto;
  std::int32_t max_num_seqs = 1;
  std::int32_t max_batch_tokens = 0;  // as in EngineOptions
  // A GPU that may be too small: its experts' layers in host memory, -1 for the fewest that fit.
  // Nothing is planned without this.
  std::optional<std::int32_t> n_cpu_moe;
  std::int64_t gpu_bytes = 0;  // 0: the first GPU found
  double gpu_rate = 0.0;       // bytes a second; 0: unknown, the GPU's part is not priced
};

// Bytes and operations a second.
struct Rate {
  double one_core = 0.0;
  double all_cores = 0.0;
};
struct DoctorRates {
  std::int32_t num_threads = 0;
  Rate read;            // of main memory
  std::string f32_isa;  // "avx512"; empty: no instruction of ours, rates are 0
  Rate f32;
  std::string bf16_isa;  // likewise
  Rate bf16;
  std::string int8_isa;  // likewise
  Rate int8;
};

// Of the GPU that a model would run on.
struct DoctorGpu {
  double read = 0.0;   // bytes a second of its memory
  double bf16 = 0.0;   // operations a second of its best bf16 matrix instruction
  std::string reason;  // why one of them is unknown; else empty
};

// What one token costs at batch 1 and short context, from the shapes.
struct TokenCost {
  std::int64_t expert_bytes = 0;     // of the experts that a token uses
  std::int64_t attention_bytes = 0;  // projections and router
  std::int64_t head_bytes = 0;
  std::int64_t flops = 0;
  std::int64_t bytes() const { return expert_bytes + attention_bytes + head_bytes; }
};

struct DoctorModel {
  std::string name;
  TokenCost token;
  std::int64_t weight_bytes = 0;     // files
  std::int64_t available_bytes = 0;  // memory now, of the GPU where the model runs there
  bool fits = false;                 // as `nibble run` decides, by the same rule
  std::string refusal;               // when it does not: why, with the numbers
  std::int32_t max_model_len = 0;    // tokens of context that will be held
  std::int64_t cache_bytes = 0;      // of that context
  MemoryParts memory;                // all that is taken, when it fits
  double tokens_per_second = 0.0;    // upper bound at batch 1
  std::string limit;                 // what sets it: "memory bandwidth" or "arithmetic"
};

struct DoctorReport {
  Capabilities capabilities;
  std::string device;  // where a model is computed, and why: "cpu: this build has no ..."
  bool is_on_gpu = false;
  DoctorRates rates;
  std::optional<DoctorGpu> gpu;  // when a model is computed there
  std::optional<DoctorModel> model;
  std::optional<OffloadPlan> offload;  // when asked for and it fits
  Status offload_refusal;              // when asked for and it does not
};

// Measures for about a second. kNotFound and kCorrupt: the model; kUnsupported: `device` is kCuda
// and there is no GPU that this build can use. A machine that can run nothing, or a model that does
// not fit, is part of the report and no failure.
Result<DoctorReport> doctor(const DoctorOptions& options);

// The parts that need no measuring.
TokenCost token_cost(const model::ModelConfig& config, model::ExpertFormat experts);
// Keys and values of one sequence in bf16; window layers hold the window.
std::int64_t cache_bytes(const model::ModelConfig& config, std::int32_t max_model_len);
// Fills `fits` and what follows from it; `model` has weights and available memory.
void judge_fit(DoctorModel& model, const model::ModelConfig& config, const DoctorOptions& options,
               MemoryOf memory);
// Fills `tokens_per_second` and `limit` from bytes and operations a second.
void predict(DoctorModel& model, double read, double peak);

}  // namespace nibble::commands
