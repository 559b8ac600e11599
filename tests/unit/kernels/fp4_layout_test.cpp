// Layouts of FP4 values, scales and gate/up rows.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "formats/bf16.h"
#include "formats/e2m1.h"
#include "kernels/convert/fp4_values.h"

namespace nibble::kernels {
namespace {

using formats::GateUpOrder;
using formats::LogicalBlocks;
using formats::LogicalCols;
using formats::LogicalRows;
using formats::PaddedRows;
using formats::ScaleLayout;
using formats::ValueLayout;

constexpr ValueLayout kValueLayouts[] = {ValueLayout::kRowMajor, ValueLayout::kHopper,
                                         ValueLayout::kHopperPairs, ValueLayout::kBlackwell};
constexpr ScaleLayout kScaleLayouts[] = {ScaleLayout::kLinear, ScaleLayout::k128x4,
                                         ScaleLayout::k8x4, ScaleLayout::kHopper};
constexpr GateUpOrder kOrders[] = {GateUpOrder::kInterleaved, GateUpOrder::kUpInterleaved,
                                   GateUpOrder::kGateFirstHalves, GateUpOrder::kUpFirstHalves};
constexpr std::int64_t kCols[] = {32, 64, 96, 2880, 2944};
constexpr std::int64_t kRows[] = {1, 17, 96, 160, 352};  // 3, 5 and 11 blocks among them

std::uint64_t mix(std::uint64_t index) {
  std::uint64_t z = (index + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

std::uint64_t digest(const std::vector<std::uint8_t>& bytes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    sum += (std::uint64_t{bytes[i]} + 1) * mix(i);
  }
  return sum;
}

std::vector<std::uint8_t> drawn_bytes(std::int64_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::int64_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::uint8_t>(mix(i));
  }
  return bytes;
}

std::vector<std::uint8_t> drawn_codes(std::int64_t count) {
  std::vector<std::uint8_t> packed(count / 2);
  for (std::int64_t i = 0; i < count; i += 2) {
    packed[i / 2] = formats::e2m1_pack(mix(i) & 15U, mix(i + 1) & 15U);
  }
  return packed;
}

std::vector<std::uint8_t> values_in(ValueLayout layout, std::int64_t rows, std::int64_t cols) {
  const std::vector<std::uint8_t> from = drawn_codes(rows * cols);
  std::vector<std::uint8_t> to(
      formats::value_extent(layout, LogicalRows(rows), LogicalCols(cols)).bytes(), 0xEE);
  EXPECT_TRUE(convert_values({from.data(), to.data(), LogicalRows(rows), LogicalCols(cols),
                              ValueLayout::kRowMajor, layout})
                  .ok());
  return to;
}

std::vector<std::uint8_t> scales_in(ScaleLayout layout, std::int64_t rows, std::int64_t blocks) {
  const std::vector<std::uint8_t> from = drawn_bytes(rows * blocks);
  std::vector<std::uint8_t> to(
      formats::scale_extent(layout, LogicalRows(rows), LogicalBlocks(blocks)).bytes(), 0xEE);
  EXPECT_TRUE(convert_scales({from.data(), to.data(), LogicalRows(rows), LogicalBlocks(blocks),
                              ScaleLayout::kLinear, layout})
                  .ok());
  return to;
}

std::vector<std::uint8_t> gate_up_in(GateUpOrder order, std::int64_t rows, std::int64_t cols) {
  const std::vector<std::uint8_t> from = drawn_bytes(2 * rows * cols);
  const PaddedRows half = formats::pad(LogicalRows(rows), 64);
  std::vector<std::uint8_t> to(2 * half.value * cols, 0xEE);
  EXPECT_TRUE(convert_gate_up({from.data(), to.data(), cols, LogicalRows(rows), PaddedRows(rows),
                               half, GateUpOrder::kInterleaved, order})
                  .ok());
  return to;
}

TEST(Fp4Layout, StoresTheBytesOfNumpy) {
  std::ifstream file(std::string(NIBBLE_SOURCE_DIR) + "/tests/golden/quantize/layouts.bin",
                     std::ios::binary);
  struct Record {
    std::int32_t kind, layout, rows, cols;
    std::uint64_t hash;
  };
  int num_records = 0;
  for (Record r{}; file.read(reinterpret_cast<char*>(&r), sizeof(r)); ++num_records) {
    const std::vector<std::uint8_t> found =
        r.kind == 0   ? values_in(static_cast<ValueLayout>(r.layout), r.rows, r.cols)
        : r.kind == 1 ? scales_in(static_cast<ScaleLayout>(r.layout), r.rows, r.cols)
                      : gate_up_in(static_cast<GateUpOrder>(r.layout), r.rows, r.cols);
    EXPECT_EQ(digest(found), r.hash)
        << r.kind << " " << r.layout << " [" << r.rows << ", " << r.cols;
  }
  EXPECT_EQ(num_records, 4 * 5 * (5 + 5 + 3));
}

TEST(Fp4Layout, ValueMapsAreBijectionsOverThePaddedExtent) {
  for (const ValueLayout layout : kValueLayouts) {
    for (const std::int64_t rows : kRows) {
      for (const std::int64_t cols : kCols) {
        const auto extent = formats::value_extent(layout, LogicalRows(rows), LogicalCols(cols));
        std::vector<bool> is_taken(extent.bytes() * 2);
        for (std::int64_t row = 0; row < extent.rows.value; ++row) {
          for (std::int64_t col = 0; col < extent.cols.value; ++col) {
            const std::int64_t nibble = formats::value_offset(layout, {row, col}, extent.cols);
            ASSERT_FALSE(is_taken.at(nibble));
            is_taken[nibble] = true;
            ASSERT_EQ(formats::value_position(layout, nibble, extent.cols),
                      (formats::ValuePosition{row, col}));
          }
        }
      }
    }
  }
}

TEST(Fp4Layout, ScaleMapsAreBijectionsOverThePaddedExtent) {
  for (const ScaleLayout layout : kScaleLayouts) {
    for (const std::int64_t rows : kRows) {
      for (const std::int64_t cols : kCols) {
        const auto extent =
            formats::scale_extent(layout, LogicalRows(rows), LogicalBlocks(cols / 32));
        std::vector<bool> is_taken(extent.bytes());
        for (std::int64_t row = 0; row < extent.rows.value; ++row) {
          for (std::int64_t block = 0; block < extent.blocks.value; ++block) {
            const std::int64_t at = formats::scale_offset(layout, {row, block}, extent.blocks);
            ASSERT_FALSE(is_taken.at(at));
            is_taken[at] = true;
            ASSERT_EQ(formats::scale_position(layout, at, extent.blocks),
                      (formats::ScalePosition{row, block}));
          }
        }
      }
    }
  }
}

TEST(Fp4Layout, ValuesAndScalesComeBackFromEveryLayout) {
  for (const std::int64_t rows : kRows) {
    for (const std::int64_t cols : kCols) {
      const std::vector<std::uint8_t> codes = drawn_codes(rows * cols);
      for (const ValueLayout layout : kValueLayouts) {
        const std::vector<std::uint8_t> stored = values_in(layout, rows, cols);
        std::vector<std::uint8_t> back(codes.size(), 0xEE);
        ASSERT_TRUE(convert_values({stored.data(), back.data(), LogicalRows(rows),
                                    LogicalCols(cols), layout, ValueLayout::kRowMajor})
                        .ok());
        ASSERT_EQ(back, codes) << rows << " " << cols;
      }
      const std::vector<std::uint8_t> scales = drawn_bytes(rows * cols / 32);
      for (const ScaleLayout layout : kScaleLayouts) {
        const std::vector<std::uint8_t> stored = scales_in(layout, rows, cols / 32);
        std::vector<std::uint8_t> back(scales.size(), 0xEE);
        ASSERT_TRUE(convert_scales({stored.data(), back.data(), LogicalRows(rows),
                                    LogicalBlocks(cols / 32), layout, ScaleLayout::kLinear})
                        .ok());
        ASSERT_EQ(back, scales) << rows << " " << cols;
      }
    }
  }
}

TEST(Fp4Layout, GateUpRowsComeBackFromEveryOrder) {
  for (const std::int64_t rows : kRows) {
    const std::vector<std::uint8_t> from = drawn_bytes(2 * rows * 32);
    for (const GateUpOrder order : kOrders) {
      const std::vector<std::uint8_t> stored = gate_up_in(order, rows, 32);
      std::vector<std::uint8_t> back(from.size(), 0xEE);
      ASSERT_TRUE(convert_gate_up({stored.data(), back.data(), 32, LogicalRows(rows),
                                   formats::pad(LogicalRows(rows), 64), PaddedRows(rows), order,
                                   GateUpOrder::kInterleaved})
                      .ok());
      ASSERT_EQ(back, from);
      for (std::int64_t row = 0; row < 2 * rows; ++row) {
        const formats::GateUpPosition at = gate_up_position(order, row, PaddedRows(rows));
        ASSERT_EQ(gate_up_row(order, at, PaddedRows(rows)), row);
        ASSERT_LT(at.index, rows);
      }
    }
  }
}

// The decode that sm_90 kernels use: three masks and shifts, then a product with 2^126.
TEST(Fp4Layout, HopperWordsDecodeToBf16ByShiftsAndOneMask) {
  for (int trial = 0; trial < 4096; ++trial) {
    const auto codes = static_cast<std::uint32_t>(mix(trial));
    const std::uint32_t x = formats::hopper_pack_word(codes);
    const std::uint32_t pairs[4] = {
        x & 0x81C081C0U, x << 3U & 0x81C081C0U, x << 6U & 0x81C081C0U,
        (x << 1U & 0x80008000U) | (x >> 3U & 0x01800180U) | (x >> 7U & 0x00400040U)};
    for (int byte = 0; byte < 4; ++byte) {
      for (int odd = 0; odd < 2; ++odd) {
        const formats::Bf16 half{static_cast<std::uint16_t>(pairs[byte] >> (16 * odd))};
        const float found = bf16_to_f32(half) * 0x1p126F;
        const float want = formats::e2m1_to_f32(codes >> (8 * byte + 4 * odd) & 0xFU);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(found), std::bit_cast<std::uint32_t>(want));
      }
    }
    ASSERT_EQ(formats::hopper_unpack_word(x), codes);
  }
}

TEST(Fp4Layout, TypedViewsConvertAndRefuseUnequalExtents) {
  const std::vector<std::uint8_t> codes = drawn_codes(std::int64_t{96} * 96);
  const Fp4Values<ValueLayout::kRowMajor> from{codes.data(), LogicalRows(96), LogicalCols(96)};
  std::vector<std::uint8_t> stored(8192);
  Fp4ValuesOut<ValueLayout::kHopper> to{stored.data(), LogicalRows(96), LogicalCols(96)};
  ASSERT_EQ(to.extent().bytes(), std::int64_t(stored.size()));
  ASSERT_TRUE(convert(from, to).ok());
  EXPECT_EQ(stored, values_in(ValueLayout::kHopper, 96, 96));
  to.cols = LogicalCols(64);
  EXPECT_EQ(convert(from, to).message(),
            "conversion: want equal extents, got [96, 96] and [96, 64]");
  EXPECT_EQ(convert_values({codes.data(), stored.data(), LogicalRows(1), LogicalCols(40),
                            ValueLayout::kRowMajor, ValueLayout::kHopper})
                .message(),
            "conversion: want columns in blocks of 32, got 40");
  EXPECT_EQ(convert_gate_up({codes.data(), stored.data(), 1, LogicalRows(4), PaddedRows(4),
                             PaddedRows(3), GateUpOrder::kInterleaved, GateUpOrder::kUpFirstHalves})
                .message(),
            "conversion: want padded halves of 4 rows or more, got 4 and 3");
}

}  // namespace
}  // namespace nibble::kernels
