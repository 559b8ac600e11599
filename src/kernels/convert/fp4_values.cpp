#include "kernels/convert/fp4_values.h"

#include <cstring>

#include "base/error.h"
#include "formats/e2m1.h"

namespace nibble::kernels {
namespace {

using formats::ValueLayout;

// Every word of the Hopper layout is repacked on the way in and out. Extents are whole words.
std::uint8_t code_at(const std::uint8_t* bytes, ValueLayout layout, std::int64_t nibble) {
  if (layout != ValueLayout::kHopper) {
    return formats::e2m1_at(bytes, nibble);
  }
  std::uint32_t word = 0;
  std::memcpy(&word, bytes + nibble / 8 * 4, sizeof(word));
  return static_cast<std::uint8_t>(formats::hopper_unpack_word(word) >> (nibble % 8 * 4) & 0xFU);
}

void pack_words(std::uint8_t* bytes, std::int64_t count) {
  for (std::int64_t at = 0; at < count; at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes + at, sizeof(word));
    word = formats::hopper_pack_word(word);
    std::memcpy(bytes + at, &word, sizeof(word));
  }
}

}  // namespace

Status check_same_extent(std::int64_t from_rows, std::int64_t from_cols, std::int64_t to_rows,
                         std::int64_t to_cols) {
  if (from_rows == to_rows && from_cols == to_cols) {
    return {};
  }
  return error(Code::kInvalidArgument, "conversion: want equal extents, got [{}, {}] and [{}, {}]",
               from_rows, from_cols, to_rows, to_cols);
}

Status convert_values(const Fp4Copy& copy) {
  if (copy.cols.value % 32 != 0) {
    return error(Code::kInvalidArgument, "conversion: want columns in blocks of 32, got {}",
                 copy.cols.value);
  }
  const auto from = formats::value_extent(copy.from_layout, copy.rows, copy.cols);
  const auto to = formats::value_extent(copy.to_layout, copy.rows, copy.cols);
  if (to.bytes() == 0) {
    return {};
  }
  std::memset(copy.to, 0, static_cast<std::size_t>(to.bytes()));
  for (std::int64_t row = 0; row < copy.rows.value; ++row) {
    for (std::int64_t col = 0; col < copy.cols.value; ++col) {
      const std::int64_t source = formats::value_offset(copy.from_layout, {row, col}, from.cols);
      const std::int64_t target = formats::value_offset(copy.to_layout, {row, col}, to.cols);
      const std::uint8_t code = code_at(copy.from, copy.from_layout, source);
      copy.to[target / 2] =
          static_cast<std::uint8_t>(copy.to[target / 2] | code << (target % 2 * 4));
    }
  }
  if (copy.to_layout == ValueLayout::kHopper) {
    pack_words(copy.to, to.bytes());
  }
  return {};
}

Status convert_scales(const ScaleCopy& copy) {
  const auto from = formats::scale_extent(copy.from_layout, copy.rows, copy.blocks);
  const auto to = formats::scale_extent(copy.to_layout, copy.rows, copy.blocks);
  if (to.bytes() == 0) {
    return {};
  }
  std::memset(copy.to, 0, static_cast<std::size_t>(to.bytes()));
  for (std::int64_t row = 0; row < copy.rows.value; ++row) {
    for (std::int64_t block = 0; block < copy.blocks.value; ++block) {
      copy.to[formats::scale_offset(copy.to_layout, {row, block}, to.blocks)] =
          copy.from[formats::scale_offset(copy.from_layout, {row, block}, from.blocks)];
    }
  }
  return {};
}

Status convert_gate_up(const GateUpCopy& copy) {
  if (copy.from_half.value < copy.half.value || copy.to_half.value < copy.half.value) {
    return error(Code::kInvalidArgument,
                 "conversion: want padded halves of {} rows or more, got {} "
                 "and {}",
                 copy.half.value, copy.from_half.value, copy.to_half.value);
  }
  if (copy.to_half.value * copy.row_bytes == 0) {
    return {};
  }
  std::memset(copy.to, 0, static_cast<std::size_t>(2 * copy.to_half.value * copy.row_bytes));
  for (std::int64_t row = 0; row < 2 * copy.half.value; ++row) {
    const formats::GateUpPosition at = {row % 2, row / 2};
    std::memcpy(
        copy.to + formats::gate_up_row(copy.to_order, at, copy.to_half) * copy.row_bytes,
        copy.from + formats::gate_up_row(copy.from_order, at, copy.from_half) * copy.row_bytes,
        static_cast<std::size_t>(copy.row_bytes));
  }
  return {};
}

}  // namespace nibble::kernels
