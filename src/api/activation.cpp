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

}  // namespace nibble
