// Sizes of a matrix before and after padding, as types that do not convert into each other: a
// kernel that wants padded rows cannot be given logical ones.
#pragma once

#include <compare>
#include <cstdint>

namespace nibble::formats {

template <typename Tag>
struct Extent {
  std::int64_t value = 0;

  constexpr Extent() = default;
  constexpr explicit Extent(std::int64_t count) : value(count) {}
  friend constexpr auto operator<=>(Extent, Extent) = default;
};

// What the model means, and what a layout stores. Columns run along the reduction axis and count
// values, not bytes.
using LogicalRows = Extent<struct LogicalRowsTag>;
using PaddedRows = Extent<struct PaddedRowsTag>;
using LogicalCols = Extent<struct LogicalColsTag>;
using PaddedCols = Extent<struct PaddedColsTag>;

constexpr std::int64_t round_up(std::int64_t count, std::int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

constexpr PaddedRows pad(LogicalRows rows, std::int64_t multiple) {
  return PaddedRows(round_up(rows.value, multiple));
}
constexpr PaddedCols pad(LogicalCols cols, std::int64_t multiple) {
  return PaddedCols(round_up(cols.value, multiple));
}

}  // namespace nibble::formats
