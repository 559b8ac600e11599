#include "kernels/gemm/gemm_cpu.h"

#include <algorithm>

#include "kernels/common/element.h"
#include "kernels/common/parallel.h"
#include "kernels/common/row_share.h"
#include "kernels/gemm/gemm_tile.h"

namespace nibble::kernels {
namespace {

// Inputs that stay in the second-level cache while weight rows stream past them.
constexpr std::int64_t kInputBytes = std::int64_t{512} * 1024;
// Below this many products a call costs less than waking the pool.
constexpr std::int64_t kInlineProducts = 1 << 15;

using TileFn = void (*)(const GemmTile& tile);

std::int64_t tiles_of(const GemmPart& part) {
  return (std::int64_t{part.n} + kTileRows - 1) / kTileRows;
}

// Outputs of one tile: weight rows [row, row + num_rows) of a part whose columns begin at `column`.
struct TilePlace {
  const GemmPart* part = nullptr;
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int32_t num_rows = 0;
};

void store_tile(const GemmArgs& args, const TilePlace& place, Range inputs, const float* sums) {
  const float* bias = place.part->bias == nullptr ? nullptr : place.part->bias + place.row;
  for (std::int64_t input = inputs.begin; input < inputs.end; ++input, sums += kTileRows) {
    float* out = args.out + input * args.out_stride + place.column + place.row;
    for (std::int32_t n = 0; n < place.num_rows; ++n) {
      const float value = bias == nullptr ? sums[n] : sums[n] + bias[n];
      out[n] = args.accumulate ? out[n] + value : value;
    }
  }
}

void run_tile(const GemmArgs& args, TileFn multiply, const TilePlace& place, Range inputs) {
  alignas(64) float sums[kTileInputs * kTileRows];
  multiply({.weight = element_at(place.part->weight, args.weight_dtype, place.row * args.k),
            .x = element_at(args.x, args.x_dtype, inputs.begin * args.k),
            .sums = sums,
            .num_rows = place.num_rows,
            .num_inputs = static_cast<std::int32_t>(inputs.end - inputs.begin),
            .k = args.k,
            .x_stride = args.k,
            .weight_dtype = args.weight_dtype,
            .x_dtype = args.x_dtype});
  store_tile(args, place, inputs, sums);
}

// Tiles count over all parts, in order.
void run_tiles(const GemmArgs& args, TileFn multiply, Range tiles, Range inputs) {
  std::int64_t first = 0;
  std::int64_t column = 0;
  for (const GemmPart& part : args.parts) {
    const std::int64_t count = tiles_of(part);
    const std::int64_t begin = std::max<std::int64_t>(tiles.begin - first, 0);
    const std::int64_t end = std::min(tiles.end - first, count);
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t row = tile * kTileRows;
      const auto num_rows =
          static_cast<std::int32_t>(std::min<std::int64_t>(kTileRows, part.n - row));
      run_tile(args, multiply, {&part, row, column, num_rows}, inputs);
    }
    first += count;
    column += part.n;
  }
}

std::int64_t inputs_at_once(const GemmArgs& args) {
  const std::int64_t row_bytes = std::int64_t{args.k} * dtype_bits(args.x_dtype) / 8;
  return std::clamp<std::int64_t>(kInputBytes / row_bytes / 6 * 6, 6, kTileInputs);
}

Status run_gemm(const GemmArgs& args, const Exec& exec, TileFn multiply) {
  std::int64_t num_tiles = 0;
  for (const GemmPart& part : args.parts) {
    num_tiles += tiles_of(part);
  }
  const auto work = [&](Range tiles) {
    const std::int64_t step = inputs_at_once(args);
    for (std::int64_t first = 0; first < args.rows; first += step) {
      run_tiles(args, multiply, tiles, {first, std::min<std::int64_t>(first + step, args.rows)});
    }
  };
  const std::int64_t products = num_tiles * kTileRows * args.k * args.rows;
  if (num_workers(exec) == 1 || products < kInlineProducts) {
    work({0, num_tiles});
  } else {
    exec.pool->run(
        [&](int worker) { work(gemm_tile_share(num_tiles, exec.pool->size(), worker)); });
  }
  return {};
}

}  // namespace

Status gemm_cpu(const GemmArgs& args, const Exec& exec) { return run_gemm(args, exec, &gemm_tile); }

#if defined(__x86_64__)
Status gemm_cpu_avx512bf16(const GemmArgs& args, const Exec& exec) {
  return run_gemm(args, exec, &gemm_tile_avx512bf16);
}
#endif

}  // namespace nibble::kernels
