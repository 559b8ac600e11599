// Order of the rows of a fused gate/up projection. `part` is 0 for gate and 1 for up, `half` the
// rows of one part: the padded count, so that a padded boundary between halves cannot be missed.
#pragma once

#include <cstdint>

#include "formats/extent.h"

namespace nibble::formats {

enum class GateUpOrder : std::uint8_t {
  kInterleaved,      // gate 0, up 0, gate 1, up 1, ...: gpt-oss checkpoints
  kUpInterleaved,    // up 0, gate 0, up 1, gate 1, ...: trtllm-gen kernels of sm_100
  kGateFirstHalves,  // all gate, then all up: DeepSeek modules, Marlin
  kUpFirstHalves,    // all up, then all gate: CUTLASS grouped products of sm_90
};

struct GateUpPosition {
  std::int64_t part = 0;
  std::int64_t index = 0;
  friend constexpr bool operator==(GateUpPosition, GateUpPosition) = default;
};

constexpr std::int64_t gate_up_row(GateUpOrder order, GateUpPosition at, PaddedRows half) {
  switch (order) {
    case GateUpOrder::kInterleaved: return 2 * at.index + at.part;
    case GateUpOrder::kUpInterleaved: return 2 * at.index + 1 - at.part;
    case GateUpOrder::kGateFirstHalves: return at.part * half.value + at.index;
    case GateUpOrder::kUpFirstHalves: return (1 - at.part) * half.value + at.index;
  }
  return 0;
}

// Inverse of gate_up_row.
constexpr GateUpPosition gate_up_position(GateUpOrder order, std::int64_t row, PaddedRows half) {
  switch (order) {
    case GateUpOrder::kInterleaved: return {row % 2, row / 2};
    case GateUpOrder::kUpInterleaved: return {1 - row % 2, row / 2};
    case GateUpOrder::kGateFirstHalves: return {row / half.value, row % half.value};
    case GateUpOrder::kUpFirstHalves: return {1 - row / half.value, row % half.value};
  }
  return {};
}

}  // namespace nibble::formats
