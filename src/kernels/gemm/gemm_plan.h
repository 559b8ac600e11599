// How large the tiles of the many-row kernel are: a pure function of sizes and device.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/gemm/gemm.h"

namespace nibble::kernels {

struct GemmTileSize {
  std::int32_t rows;  // of x
  std::int32_t n;     // weight rows
  friend constexpr bool operator==(GemmTileSize, GemmTileSize) = default;
};

// 128 rows by 32, 64, 96, 128, 192 or 256, or 64 by 32. A tile's time is its area and a little;
// tiles run in waves of num_sms. So the size with the least waves times area wins, of equals the
// largest, which reads the least.
GemmTileSize gemm_tile_size(std::int32_t rows, std::span<const GemmPart> parts,
                            std::int32_t num_sms);

}  // namespace nibble::kernels
