// The model behind model.h, from weights that were read or made.
#pragma once

#include <memory>

#include "model/model.h"
#include "model/model_weights.h"
#include "nibble/status.h"

namespace nibble::model {

// Plans and takes memory and brings the weights to where the kernels run. `options` were checked.
// kExhausted: what does not fit, with the numbers.
Result<std::unique_ptr<Model>> make_gpt_oss(ModelConfig config, const ModelOptions& options,
                                            ModelWeights weights);

}  // namespace nibble::model
