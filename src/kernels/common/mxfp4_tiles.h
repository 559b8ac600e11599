// Where expert tiles lie: plain data for host and device.
#pragma once

#include <cstdint>

#include "formats/bf16.h"

namespace nibble::kernels {

// All experts of one matrix, as pack_expert_tiles() makes them, one after another.
struct Mxfp4Tiles {
  const std::uint8_t* values = nullptr;  // 16-byte aligned
  const std::uint8_t* scales = nullptr;  // 4-byte aligned
  const float* factors = nullptr;        // [num_experts] 2^exponent
  const formats::Bf16* bias = nullptr;   // [num_experts, rows] or null
};

}  // namespace nibble::kernels
