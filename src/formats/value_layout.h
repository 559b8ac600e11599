// Where the 4-bit code of (row, col) lies in a stored matrix, counted in nibbles from its start; a
// byte's low nibble comes first. docs/formats/value-layouts.md has the pictures.
//
//   row-major      row * cols + col: as checkpoints store it, K consecutive
//   hopper         16-row tiles in the order of register fragments of sm_90 matrix instructions;
//                  then each 32-bit word is repacked for a decode of 11 integer operations
//   hopper pairs   units of 16 rows x 64 columns; rows r and r + 8 share a byte
//   blackwell      row-major, rows padded to 128 bytes for TMA
//
// Sources of the rules: triton_kernels' Hopper and Blackwell MX value layouts, FlashInfer's byte
// interleave for mixed-input products on sm_90. Padding holds code 0.
#pragma once

#include <cstdint>

#include "formats/extent.h"

namespace nibble::formats {

enum class ValueLayout : std::uint8_t { kRowMajor, kHopper, kHopperPairs, kBlackwell };

struct ValueTile {
  std::int32_t rows = 1;
  std::int32_t cols = 2;
};

// Extents are padded to multiples of this.
constexpr ValueTile value_tile(ValueLayout layout) {
  switch (layout) {
    case ValueLayout::kRowMajor: return {1, 2};
    case ValueLayout::kHopper: return {64, 128};
    case ValueLayout::kHopperPairs: return {16, 64};
    case ValueLayout::kBlackwell: return {1, 256};
  }
  return {};
}

// Extents of one stored matrix.
struct ValueExtent {
  PaddedRows rows;
  PaddedCols cols;
  constexpr std::int64_t bytes() const { return rows.value * cols.value / 2; }
};

constexpr ValueExtent value_extent(ValueLayout layout, LogicalRows rows, LogicalCols cols) {
  const ValueTile tile = value_tile(layout);
  return {pad(rows, tile.rows), pad(cols, tile.cols)};
}

struct ValuePosition {
  std::int64_t row = 0;
  std::int64_t col = 0;
  friend constexpr bool operator==(ValuePosition, ValuePosition) = default;
};

// Row r = 16R + 8 w0 + 2 t0 + s0 and packed byte c = 32C + 8 kt + 4 w1 + t1 move to row 4R + t0,
// byte 128C + 64 s0 + 16 t1 + 4 kt + 2 w1 + w0 of a matrix of rows/4 x 4 * row bytes. A 16-byte
// piece is one thread's share of four consecutive k16 fragments of a 16-row tile.
constexpr std::int64_t value_offset_hopper(ValuePosition at, PaddedCols cols) {
  const std::int64_t r = at.row;
  const std::int64_t c = at.col / 2;
  const std::int64_t row = r / 16 * 4 + r / 2 % 4;
  const std::int64_t byte =
      c / 32 * 128 + r % 2 * 64 + c % 4 * 16 + c / 8 % 4 * 4 + c / 4 % 2 * 2 + r / 8 % 2;
  return (row * 2 * cols.value + byte) * 2 + at.col % 2;
}

constexpr ValuePosition value_position_hopper(std::int64_t nibble, PaddedCols cols) {
  const std::int64_t row = nibble / 2 / (2 * cols.value);
  const std::int64_t byte = nibble / 2 % (2 * cols.value);
  const std::int64_t c = byte / 128 * 32 + byte / 4 % 4 * 8 + byte / 2 % 2 * 4 + byte / 16 % 4;
  return {row / 4 * 16 + byte % 2 * 8 + row % 4 * 2 + byte / 64 % 2, c * 2 + nibble % 2};
}

// In a unit, byte L of rows r and r + 8: the two low nibbles make one byte, the two high ones the
// next, at row r + 8 (L/8 % 2), byte 16 (L/16) + 4 (L % 4) + 2 (L/4 % 2).
constexpr std::int64_t value_offset_hopper_pairs(ValuePosition at, PaddedCols cols) {
  const std::int64_t lane = at.col % 64 / 2;
  const std::int64_t row = at.row / 16 * 16 + at.row % 8 + lane / 8 % 2 * 8;
  const std::int64_t byte =
      at.col / 64 * 32 + lane / 16 * 16 + lane % 4 * 4 + lane / 4 % 2 * 2 + at.col % 2;
  return row * cols.value + byte * 2 + at.row / 8 % 2;
}

constexpr ValuePosition value_position_hopper_pairs(std::int64_t nibble, PaddedCols cols) {
  const std::int64_t row = nibble / cols.value;
  const std::int64_t byte = nibble % cols.value / 2;
  const std::int64_t lane = byte % 32 / 16 * 16 + row / 8 % 2 * 8 + byte / 2 % 2 * 4 + byte / 4 % 4;
  return {row / 16 * 16 + row % 8 + nibble % 2 * 8, byte / 32 * 64 + lane * 2 + byte % 2};
}

// Nibble of (row, col) in a stored matrix with `cols` padded columns.
constexpr std::int64_t value_offset(ValueLayout layout, ValuePosition at, PaddedCols cols) {
  switch (layout) {
    case ValueLayout::kRowMajor:
    case ValueLayout::kBlackwell: return at.row * cols.value + at.col;
    case ValueLayout::kHopper: return value_offset_hopper(at, cols);
    case ValueLayout::kHopperPairs: return value_offset_hopper_pairs(at, cols);
  }
  return 0;
}

// Inverse of value_offset.
constexpr ValuePosition value_position(ValueLayout layout, std::int64_t nibble, PaddedCols cols) {
  switch (layout) {
    case ValueLayout::kRowMajor:
    case ValueLayout::kBlackwell: return {nibble / cols.value, nibble % cols.value};
    case ValueLayout::kHopper: return value_position_hopper(nibble, cols);
    case ValueLayout::kHopperPairs: return value_position_hopper_pairs(nibble, cols);
  }
  return {};
}

// Bits of one code in a half-word of the Hopper layout: sign, the two exponent bits, mantissa.
struct HopperBits {
  std::uint8_t sign = 0;
  std::uint8_t exponent_high = 0;
  std::uint8_t exponent_low = 0;
  std::uint8_t mantissa = 0;
};
// Of byte 0..3 of a word. A function, since device code has no address for a host's array.
constexpr HopperBits hopper_bits(std::uint32_t byte) {
  switch (byte) {
    case 0: return {15, 8, 7, 6};
    case 1: return {12, 5, 4, 3};
    case 2: return {9, 2, 1, 0};
    default: return {14, 11, 10, 13};
  }
}

// Repacks one little-endian word of eight codes, two in each byte: even codes build the low
// half-word, odd codes the high one, so that shifts and one mask give pairs of bf16 up to 2^126.
constexpr std::uint32_t hopper_pack_word(std::uint32_t codes) {
  std::uint32_t word = 0;
  for (std::uint32_t nibble = 0; nibble < 8; ++nibble) {
    const std::uint32_t code = codes >> (4U * nibble) & 0xFU;
    const HopperBits bits = hopper_bits(nibble / 2);
    const std::uint32_t half =
        (code >> 3U & 1U) << bits.sign | (code >> 2U & 1U) << bits.exponent_high |
        (code >> 1U & 1U) << bits.exponent_low | (code & 1U) << bits.mantissa;
    word |= half << (nibble % 2 * 16U);
  }
  return word;
}

// Inverse of hopper_pack_word.
constexpr std::uint32_t hopper_unpack_word(std::uint32_t word) {
  std::uint32_t codes = 0;
  for (std::uint32_t nibble = 0; nibble < 8; ++nibble) {
    const std::uint32_t half = word >> (nibble % 2 * 16U);
    const HopperBits bits = hopper_bits(nibble / 2);
    const std::uint32_t code =
        (half >> bits.sign & 1U) << 3U | (half >> bits.exponent_high & 1U) << 2U |
        (half >> bits.exponent_low & 1U) << 1U | (half >> bits.mantissa & 1U);
    codes |= code << (4U * nibble);
  }
  return codes;
}

static_assert(hopper_unpack_word(hopper_pack_word(0x89ABCDEFU)) == 0x89ABCDEFU);
static_assert(value_offset(ValueLayout::kHopper, {8, 1}, PaddedCols(128)) == 3);
static_assert(value_offset(ValueLayout::kHopperPairs, {8, 0}, PaddedCols(64)) == 1);

}  // namespace nibble::formats
