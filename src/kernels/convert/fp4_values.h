// FP4 value matrices in their layouts, as types: a kernel that reads Hopper tiles takes
// Fp4Values<ValueLayout::kHopper> and cannot be handed anything else. Likewise scales, and the row
// order of a gate/up projection. Maps: formats/value_layout.h, scale_layout.h, gate_up.h.
//
// Conversions are exact permutations; padding is written as zeros on the way in and left out on the
// way back, so `to` then `from` gives the same bytes. Source and destination may not overlap. Host
// memory, one thread; weights are converted once.
#pragma once

#include <cstdint>

#include "formats/gate_up.h"
#include "formats/scale_layout.h"
#include "formats/value_layout.h"
#include "nibble/status.h"

namespace nibble::kernels {

// Views over one matrix of e2m1 codes, two in a byte. `bytes` spans extent().bytes().
template <formats::ValueLayout kLayout, typename Byte>
struct Fp4View {
  Byte* bytes = nullptr;
  formats::LogicalRows rows;
  formats::LogicalCols cols;  // multiple of 32
  constexpr formats::ValueExtent extent() const {
    return formats::value_extent(kLayout, rows, cols);
  }
};
template <formats::ValueLayout kLayout>
using Fp4Values = Fp4View<kLayout, const std::uint8_t>;
template <formats::ValueLayout kLayout>
using Fp4ValuesOut = Fp4View<kLayout, std::uint8_t>;

// Views over one matrix of scale bytes.
template <formats::ScaleLayout kLayout, typename Byte>
struct ScaleView {
  Byte* bytes = nullptr;
  formats::LogicalRows rows;
  formats::LogicalBlocks blocks;
  constexpr formats::ScaleExtent extent() const {
    return formats::scale_extent(kLayout, rows, blocks);
  }
};
template <formats::ScaleLayout kLayout>
using Scales = ScaleView<kLayout, const std::uint8_t>;
template <formats::ScaleLayout kLayout>
using ScalesOut = ScaleView<kLayout, std::uint8_t>;

// Views over the rows of a gate/up projection: 2 * half rows of row_bytes, of values, scales or
// biases alike. Each half is stored with `padded_half` rows.
template <formats::GateUpOrder kOrder, typename Byte>
struct GateUpView {
  Byte* bytes = nullptr;
  std::int64_t row_bytes = 0;
  formats::LogicalRows half;
  formats::PaddedRows padded_half;
};
template <formats::GateUpOrder kOrder>
using GateUpRows = GateUpView<kOrder, const std::uint8_t>;
template <formats::GateUpOrder kOrder>
using GateUpRowsOut = GateUpView<kOrder, std::uint8_t>;

// The same with the layouts as values; the typed forms below are what callers use.
struct Fp4Copy {
  const std::uint8_t* from = nullptr;
  std::uint8_t* to = nullptr;
  formats::LogicalRows rows;
  formats::LogicalCols cols;
  formats::ValueLayout from_layout = formats::ValueLayout::kRowMajor;
  formats::ValueLayout to_layout = formats::ValueLayout::kRowMajor;
};
Status convert_values(const Fp4Copy& copy);

struct ScaleCopy {
  const std::uint8_t* from = nullptr;
  std::uint8_t* to = nullptr;
  formats::LogicalRows rows;
  formats::LogicalBlocks blocks;
  formats::ScaleLayout from_layout = formats::ScaleLayout::kLinear;
  formats::ScaleLayout to_layout = formats::ScaleLayout::kLinear;
};
Status convert_scales(const ScaleCopy& copy);

struct GateUpCopy {
  const std::uint8_t* from = nullptr;
  std::uint8_t* to = nullptr;
  std::int64_t row_bytes = 0;
  formats::LogicalRows half;
  formats::PaddedRows from_half;
  formats::PaddedRows to_half;
  formats::GateUpOrder from_order = formats::GateUpOrder::kInterleaved;
  formats::GateUpOrder to_order = formats::GateUpOrder::kInterleaved;
};
Status convert_gate_up(const GateUpCopy& copy);

// kInvalidArgument with both sizes when the views disagree, when cols is not a multiple of 32 or a
// padded half is below the logical one.
Status check_same_extent(std::int64_t from_rows, std::int64_t from_cols, std::int64_t to_rows,
                         std::int64_t to_cols);

template <formats::ValueLayout kFrom, formats::ValueLayout kTo>
Status convert(const Fp4Values<kFrom>& from, const Fp4ValuesOut<kTo>& to) {
  if (Status status =
          check_same_extent(from.rows.value, from.cols.value, to.rows.value, to.cols.value);
      !status.ok()) {
    return status;
  }
  return convert_values({from.bytes, to.bytes, from.rows, from.cols, kFrom, kTo});
}

template <formats::ScaleLayout kFrom, formats::ScaleLayout kTo>
Status convert(const Scales<kFrom>& from, const ScalesOut<kTo>& to) {
  if (Status status =
          check_same_extent(from.rows.value, from.blocks.value, to.rows.value, to.blocks.value);
      !status.ok()) {
    return status;
  }
  return convert_scales({from.bytes, to.bytes, from.rows, from.blocks, kFrom, kTo});
}

template <formats::GateUpOrder kFrom, formats::GateUpOrder kTo>
Status convert(const GateUpRows<kFrom>& from, const GateUpRowsOut<kTo>& to) {
  if (Status status =
          check_same_extent(from.half.value, from.row_bytes, to.half.value, to.row_bytes);
      !status.ok()) {
    return status;
  }
  return convert_gate_up({from.bytes, to.bytes, from.row_bytes, from.half, from.padded_half,
                          to.padded_half, kFrom, kTo});
}

}  // namespace nibble::kernels
