// What the choice of activations means to a model, and what it is called.
#pragma once

#include "nibble/engine.h"
#include "tensor/dtype.h"

namespace nibble {

// "bf16", "f32" or "int8".
const char* activation_name(Activation activation);

// What activations and cache are stored as; int8 lives inside the experts alone.
inline DType stored_dtype(Activation activation) {
  return activation == Activation::kF32 ? DType::kF32 : DType::kBF16;
}

}  // namespace nibble
