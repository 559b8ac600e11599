#include "kernels/gemm/gemm_plan.h"

#include <limits>

namespace nibble::kernels {
namespace {

struct Size {
  GemmTileSize tile;
  std::int64_t cost;  // of a tile: narrow ones read more for each product
};
constexpr Size kSizes[] = {{{128, 256}, 256}, {{128, 192}, 200}, {{128, 128}, 144},
                           {{128, 96}, 112},  {{128, 64}, 80},   {{128, 32}, 56},
                           {{64, 32}, 40}};

std::int64_t ceil_div(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

}  // namespace

GemmTileSize gemm_tile_size(std::int32_t rows, std::span<const GemmPart> parts,
                            std::int32_t num_sms) {
  GemmTileSize best = kSizes[0].tile;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Size& size : kSizes) {
    std::int64_t tiles = 0;
    for (const GemmPart& part : parts) {
      tiles += ceil_div(part.n, size.tile.n) * ceil_div(rows, size.tile.rows);
    }
    const std::int64_t cost = ceil_div(tiles, num_sms) * size.cost;
    if (cost < least) {
      least = cost;
      best = size.tile;
    }
  }
  return best;
}

}  // namespace nibble::kernels
