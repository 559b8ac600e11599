// Element types of stored and computed tensors.
#pragma once

#include <cstdint>
#include <string_view>

namespace nibble {

enum class DType : std::uint8_t {
  kF32,
  kBF16,
  kF16,
  kE4M3,
  kUE8M0,
  kE2M1,
  kU8,
  kI8,
  kI16,
  kI32,
  kI64,
  kF64,
  kBool
};

// Bits of one element; e2m1 has 4.
constexpr int dtype_bits(DType dtype) {
  switch (dtype) {
    case DType::kE2M1: return 4;
    case DType::kE4M3:
    case DType::kUE8M0:
    case DType::kU8:
    case DType::kI8:
    case DType::kBool: return 8;
    case DType::kBF16:
    case DType::kF16:
    case DType::kI16: return 16;
    case DType::kF32:
    case DType::kI32: return 32;
    case DType::kI64:
    case DType::kF64: return 64;
  }
  return 0;
}

constexpr std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kE4M3: return "e4m3";
    case DType::kUE8M0: return "ue8m0";
    case DType::kE2M1: return "e2m1";
    case DType::kU8: return "u8";
    case DType::kI8: return "i8";
    case DType::kI16: return "i16";
    case DType::kI32: return "i32";
    case DType::kI64: return "i64";
    case DType::kF64: return "f64";
    case DType::kBool: return "bool";
  }
  return "unknown";
}

}  // namespace nibble
