// Which tiles of weight rows a worker multiplies, so that their memory can be brought near it
// before (model/weight_placement.h).
#pragma once

#include <cstdint>

#include "base/thread_pool.h"

namespace nibble::kernels {

// Of `num_tiles` tiles of a dense product, all parts counted.
constexpr Range gemm_tile_share(std::int64_t num_tiles, int workers, int worker) {
  return split_range(num_tiles, workers, worker);
}

// Of an expert's matrix, the same for every expert. A share is cut at multiples of `unit` tiles.
constexpr Range expert_tile_share(std::int64_t num_tiles, std::int64_t unit, int workers,
                                  int worker) {
  const Range units = split_range(num_tiles / unit, workers, worker);
  return {units.begin * unit, units.end * unit};
}

// Tiles of gate and up rows that a block of int8 values of h comes from.
inline constexpr std::int64_t kInt8UnitTiles = 8;

}  // namespace nibble::kernels
