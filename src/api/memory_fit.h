// Plans the memory of an engine before anything is loaded: fit or refuse.
#pragma once

#include <cstdint>

#include "engine/scheduler.h"
#include "model/model.h"
#include "nibble/engine.h"
#include "nibble/status.h"

namespace nibble {

// What the plan takes of the memory, by parts.
struct MemoryParts {
  std::int64_t weight_bytes = 0;
  std::int64_t cache_bytes = 0;    // all pages
  std::int64_t step_bytes = 0;     // activations, logits and inputs of a step; of a device alone
  std::int64_t reserve_bytes = 0;  // what is not counted: stacks, tokenizer; graphs, the runtime
  std::int64_t total_bytes() const {
    return weight_bytes + cache_bytes + step_bytes + reserve_bytes;
  }
};

struct EnginePlan {
  model::ModelOptions model;
  engine::SchedulerLimits limits;
  MemoryParts memory;
};

// Whose memory is planned.
enum class MemoryOf : std::uint8_t { kHost, kDevice };

// `file_bytes`: of the checkpoint; `available_bytes`: what this process may still take. Without an
// explicit max_model_len the context is the model's, lowered to what one sequence can have; an
// explicit one that does not fit is kExhausted with the numbers. Several sequences share the pages:
// enough for all at full length if there is room for that. What is left, and a fifth of the cache
// when the context had to be lowered, keeps the window pages of prefixes. On a device what a step
// needs is counted; on a host a constant stands for it.
Result<EnginePlan> plan_engine(const EngineOptions& options, const model::ModelConfig& config,
                               std::int64_t file_bytes, std::int64_t available_bytes,
                               MemoryOf memory = MemoryOf::kHost);

}  // namespace nibble
