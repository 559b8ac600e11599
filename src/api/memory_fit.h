// Plans the memory of an engine before anything is loaded: fit or refuse.
#pragma once

#include <cstdint>

#include "engine/scheduler.h"
#include "model/model.h"
#include "nibble/engine.h"
#include "nibble/status.h"

namespace nibble {

struct EnginePlan {
  model::ModelOptions model;
  engine::SchedulerLimits limits;
};

// `file_bytes`: of the checkpoint; `available_bytes`: what this process may still take. Without an
// explicit max_model_len the context is the model's, lowered to what fits; an explicit one that
// does not fit is kExhausted with the numbers.
Result<EnginePlan> plan_engine(const EngineOptions& options, const model::ModelConfig& config,
                               std::int64_t file_bytes, std::int64_t available_bytes);

}  // namespace nibble
