// What the choice of activations and of the cache means to a model, and what it is called.
#pragma once

#include "nibble/engine.h"
#include "tensor/dtype.h"

namespace nibble {

// "bf16", "f32" or "int8".
const char* activation_name(Activation activation);

// What activations are stored as; int8 lives inside the experts alone.
inline DType stored_dtype(Activation activation) {
  return activation == Activation::kF32 ? DType::kF32 : DType::kBF16;
}

// What keys and values are stored as.
inline DType cache_dtype(Activation activation, KvCacheType cache) {
  return cache == KvCacheType::kFp8 ? DType::kE4M3 : stored_dtype(activation);
}

// "bf16", "f32" or "fp8".
const char* cache_name(DType cache);

}  // namespace nibble
