#include "api/activation.h"

namespace nibble {

const char* activation_name(Activation activation) {
  switch (activation) {
    case Activation::kBf16: return "bf16";
    case Activation::kF32: return "f32";
    case Activation::kInt8: return "int8";
  }
  return "unknown";
}

const char* cache_name(DType cache) {
  return cache == DType::kE4M3 ? "fp8" : cache == DType::kF32 ? "f32" : "bf16";
}

}  // namespace nibble
