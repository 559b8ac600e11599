#include "kernels/gemm/gemm_plan.h"

#include <limits>

namespace nibble::kernels {
namespace {

struct Width {
  std::int32_t tile_n;
  std::int64_t cost;  // of a tile: narrow ones read more for each product
};
constexpr Width kWidths[] = {{256, 256}, {192, 200}, {128, 144}};

std::int64_t ceil_div(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

}  // namespace

std::int32_t gemm_tile_n(std::int32_t rows, std::span<const GemmPart> parts, std::int32_t num_sms) {
  std::int32_t best = kWidths[0].tile_n;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const Width& width : kWidths) {
    std::int64_t tiles = 0;
    for (const GemmPart& part : parts) {
      tiles += ceil_div(part.n, width.tile_n) * ceil_div(rows, kGemmTileRows);
    }
    const std::int64_t cost = ceil_div(tiles, num_sms) * width.cost;
    if (cost < least) {
      least = cost;
      best = width.tile_n;
    }
  }
  return best;
}

}  // namespace nibble::kernels
