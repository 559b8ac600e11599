// Completes and checks the sampling parameters of a request.
#pragma once

#include "engine/token_request.h"
#include "model/config.h"
#include "nibble/request.h"
#include "nibble/status.h"

namespace nibble {

// Empty fields take the model's defaults (greedy when it says do_sample false); an empty seed a
// random one. kInvalidArgument names the field, what is allowed and what was given.
Result<engine::SamplingRules> sampling_rules(const SamplingParams& params,
                                             const model::GenerationDefaults& defaults);

}  // namespace nibble
