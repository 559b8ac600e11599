#include "kernels/moe/moe_steps.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/element.h"
#include "kernels/common/parallel.h"
#include "kernels/common/row_share.h"
#include "kernels/gemm/gemm_tile.h"
#include "kernels/moe/int8_groups.h"
#include "kernels/moe/moe_tile.h"
#include "kernels/moe/moe_workspace.h"
#include "kernels/moe/mxfp4_tile.h"

namespace nibble::kernels {
namespace {

// Below this many products a call costs less than waking the pool.
constexpr std::int64_t kInlineProducts = 1 << 15;
// Tiles whose sums are finished together: 32 values of h, so that the activation fills vectors.
constexpr std::int64_t kStoredTiles = kInt8UnitTiles;
constexpr std::int64_t kTileSums = std::int64_t{kTileInputs} * kTileRows;
// Which are then one block of h in int8.
static_assert(kStoredTiles * kTileRows / 2 == kInt8Block);
constexpr std::int64_t kQuadBytes = kQuadGroup * std::int64_t{sizeof(formats::Bf16)};

// A row in quad order. `cols` is a multiple of 32; what is left of the last group becomes zeros.
void quad_row(const formats::Bf16* from, std::int64_t cols, formats::Bf16* to) {
  constexpr std::int64_t kSet = kQuadGroup / 4;
  for (; cols > 0; cols -= kQuadGroup, from += kQuadGroup, to += kQuadGroup) {
    if (cols < kQuadGroup) {
      std::fill_n(to, kQuadGroup, formats::Bf16{});
    }
    const std::int64_t filled = std::min(cols, kQuadGroup) / 4;
    for (std::int64_t set = 0; set < 4; ++set) {
      for (std::int64_t i = 0; i < filled; ++i) {
        to[set * kSet + i] = from[4 * i + set];
      }
    }
  }
}

// Calls of at most so many tokens give a worker whole experts where it comes to that: workers that
// wrote the same rows of h, in orders that spread a few columns over many lines of the cache, would
// take these lines from each other for as long as computing takes. Above, rows of h are long in
// making and shares are even whatever the routing.
constexpr std::int32_t kFewTokens = 8;
// What streaming the weights of an expert costs, in inputs.
constexpr std::int64_t kStreamedInputs = 2;

// Which units of each expert are a worker's, expert after expert, when the units of all experts in
// use stand in a row and each worker takes a piece of equal cost.
class UnitShare {
 public:
  // `total` inputs of `num_used` experts, `units` of each.
  UnitShare(std::int64_t total, std::int64_t num_used, std::int64_t units)
      : units_(units), cost_((total + kStreamedInputs * num_used) * units) {}

  // Of the next expert in use.
  Range take(std::int64_t inputs, int workers, int worker) {
    const std::int64_t each = inputs + kStreamedInputs;
    const auto border = [&](int index) {  // units before the worker's piece, rounded up
      const std::int64_t cost = cost_ * index / workers - before_;
      return std::clamp<std::int64_t>((cost + each - 1) / each, 0, units_);
    };
    const Range out{border(worker), border(worker + 1)};
    before_ += each * units_;
    return out;
  }

 private:
  std::int64_t units_;
  std::int64_t cost_;        // of all
  std::int64_t before_ = 0;  // of the experts so far
};

class ExpertRun {
 public:
  ExpertRun(const MoeArgs& args, const ExpertMath& math)
      : args_(args), math_(math), work_(lay_out_workspace(stored(args, math), args.num_tokens)) {}

  void run(const Exec& exec) {
    const std::int64_t pairs = std::int64_t{args_.num_tokens} * args_.top_k;
    sort_by_expert(args_, work_);
    for_rows(exec, pairs, args_.hidden, [&](Range range) { gather(range); });
    const std::int64_t products = pairs * args_.hidden * args_.intermediate;
    if (num_workers(exec) == 1 || products < kInlineProducts) {
      gate_up(1, 0);
      down(1, 0);
      return;
    }
    const int workers = num_workers(exec);
    // Where memory has several nodes a worker's rows lie near it, the same of every expert.
    has_own_rows_ = args_.num_tokens > kFewTokens || exec.pool->has_several_nodes();
    exec.pool->run([&](int worker) { gate_up(workers, worker); });
    exec.pool->run([&](int worker) { down(workers, worker); });
  }

 private:
  static MoeArgs stored(MoeArgs args, const ExpertMath& math) {
    args.x_dtype = math.widens ? DType::kF32 : args.x_dtype;
    return args;
  }
  std::int64_t stored_col(std::int64_t col) const {
    return math_.widens ? split_position(col) : math_.quads ? quad_position(col) : col;
  }
  bool is_int8() const { return args_.inputs == ExpertInputs::kInt8; }
  void gather(Range pairs) const;
  void gate_up(int workers, int worker) const;
  void down(int workers, int worker) const;
  void store_h(std::int64_t expert, Range tiles, Range inputs, const float* sums) const;
  void store_h_row(std::int64_t input, Range cols, const float* values) const;
  void store_y(std::int64_t expert, Range tiles, Range inputs, const float* sums) const;
  void combine(Range columns) const;
  template <typename Store>
  void multiply(const ExpertTile& given, std::int64_t expert, Range tiles, Store&& store) const;
  std::int64_t num_inputs(std::int64_t expert) const {
    return work_.first[expert + 1] - work_.first[expert];
  }

  const MoeArgs& args_;
  const ExpertMath& math_;
  MoeWorkspace work_;
  bool has_own_rows_ = false;  // every worker its rows of each expert, not pieces of all units
};

// Rows of x in the order of their experts; zeros where a row of x or h is padded.
void ExpertRun::gather(Range pairs) const {
  const std::int64_t element_bytes = dtype_bits(args_.x_dtype) / 8;
  for (std::int64_t pair = pairs.begin; pair < pairs.end; ++pair) {
    const std::int64_t token = work_.routed[pair] / args_.top_k;
    const void* from = element_at(args_.x, args_.x_dtype, token * args_.hidden);
    std::byte* to = work_.x + pair * work_.x_row_bytes;
    std::byte* const h_end = work_.h + (pair + 1) * work_.h_row_bytes;
    if (is_int8()) {
      quantize_row(from, args_.x_dtype, args_.hidden, reinterpret_cast<Int8Group*>(to));
      std::memset(h_end - sizeof(Int8Group), 0, sizeof(Int8Group));
      continue;
    }
    if (math_.widens) {
      split_row(from, args_.x_dtype, args_.hidden, reinterpret_cast<float*>(to));
      continue;
    }
    if (!math_.quads) {
      std::memcpy(to, from, static_cast<std::size_t>(args_.hidden * element_bytes));
      continue;
    }
    quad_row(static_cast<const formats::Bf16*>(from), args_.hidden,
             reinterpret_cast<formats::Bf16*>(to));
    std::memset(h_end - kQuadBytes, 0, kQuadBytes);
  }
}

// Tiles of an expert over its inputs. `given` holds what all tiles of all experts share, and the
// rows of an expert in `row`; store(expert, tiles, inputs, sums) takes up to kStoredTiles tiles at
// a time.
template <typename Store>
void ExpertRun::multiply(const ExpertTile& given, std::int64_t expert, Range tiles,
                         Store&& store) const {
  alignas(64) float sums[kStoredTiles * kTileSums];
  ExpertTile tile = given;
  tile.x_dtype = args_.x_dtype;
  tile.expert = expert;
  const std::int64_t end = work_.first[expert + 1];
  for (std::int64_t input = work_.first[expert]; input < end; input += kTileInputs) {
    const Range inputs{input, std::min<std::int64_t>(end, input + kTileInputs)};
    tile.x = given.x + input * given.x_row_bytes;
    tile.num_inputs = static_cast<std::int32_t>(inputs.end - inputs.begin);
    for (std::int64_t first = tiles.begin; first < tiles.end; first += kStoredTiles) {
      const Range stored{first, std::min(tiles.end, first + kStoredTiles)};
      for (std::int64_t i = stored.begin; i < stored.end; ++i) {
        tile.row = expert * given.row + i * kTileRows;
        tile.sums = sums + (i - first) * kTileSums;
        math_.tile(tile);
      }
      store(expert, stored, inputs, sums);
    }
  }
}

void ExpertRun::gate_up(int workers, int worker) const {
  const std::int64_t num_rows = std::int64_t{2} * args_.intermediate;
  // In int8 a worker's share ends where a block of h does.
  const std::int64_t unit = is_int8() ? kStoredTiles : 1;
  const std::int64_t num_units = num_rows / kTileRows / unit;
  const Range own = expert_tile_share(num_rows / kTileRows, unit, workers, worker);
  std::int64_t num_used = 0;
  for (std::int64_t expert = 0; expert < args_.num_experts; ++expert) {
    num_used += num_inputs(expert) > 0 ? 1 : 0;
  }
  UnitShare share(std::int64_t{args_.num_tokens} * args_.top_k, num_used, num_units);
  for (std::int64_t expert = 0; expert < args_.num_experts; ++expert) {
    if (num_inputs(expert) == 0) {
      continue;
    }
    const Range units = share.take(num_inputs(expert), workers, worker);
    multiply({.weight = &args_.gate_up.weight,
              .row = num_rows,
              .x = work_.x,
              .x_row_bytes = work_.x_row_bytes,
              .cols = args_.hidden},
             expert, has_own_rows_ ? own : Range{units.begin * unit, units.end * unit},
             [this](auto... rest) { store_h(rest...); });
  }
}

void ExpertRun::store_h(std::int64_t expert, Range tiles, Range inputs, const float* sums) const {
  const std::int64_t row = tiles.begin * kTileRows;
  const std::int64_t count = (tiles.end - tiles.begin) * kTileRows;
  alignas(64) float biases[kStoredTiles * kTileRows] = {};
  alignas(64) float pairs[kStoredTiles * kTileRows] = {};
  alignas(64) float h[kStoredTiles * kTileRows / 2];
  const formats::Bf16* bias = args_.gate_up.bias;
  for (std::int64_t i = 0; i < count && bias != nullptr; ++i) {
    biases[i] = bf16_to_f32(bias[expert * 2 * args_.intermediate + row + i]);
  }
  for (std::int64_t input = inputs.begin; input < inputs.end; ++input, sums += kTileRows) {
    for (std::int64_t tile = 0; tile < tiles.end - tiles.begin; ++tile) {
      std::copy_n(sums + tile * kTileSums, kTileRows, pairs + tile * kTileRows);
    }
    activate(pairs, biases, static_cast<std::int32_t>(count / 2), {args_.alpha, args_.limit}, h);
    store_h_row(input, {row / 2, (row + count) / 2}, h);
  }
}

// Rounded to x_dtype, whatever it is kept as, or a block of int8.
void ExpertRun::store_h_row(std::int64_t input, Range cols, const float* values) const {
  std::byte* row = work_.h + input * work_.h_row_bytes;
  if (is_int8()) {
    quantize_blocks(values, cols.begin / kInt8Block, (cols.end - cols.begin) / kInt8Block,
                    reinterpret_cast<Int8Group*>(row));
    return;
  }
  auto* const as_f32 = reinterpret_cast<float*>(row);
  auto* const as_bf16 = reinterpret_cast<formats::Bf16*>(row);
  const bool is_bf16 = args_.x_dtype == DType::kBF16;
  for (std::int64_t col = cols.begin; col < cols.end; ++col, ++values) {
    if (!is_bf16) {
      as_f32[stored_col(col)] = *values;
    } else if (math_.widens) {
      as_f32[split_position(col)] = bf16_to_f32(formats::f32_to_bf16(*values));
    } else {
      as_bf16[stored_col(col)] = formats::f32_to_bf16(*values);
    }
  }
}

// A worker's rows are the same for every expert, so it can combine their results at once.
void ExpertRun::down(int workers, int worker) const {
  const Range tiles = expert_tile_share(args_.hidden / kTileRows, 1, workers, worker);
  for (std::int64_t expert = 0; expert < args_.num_experts; ++expert) {
    multiply({.weight = &args_.down.weight,
              .row = args_.hidden,
              .x = work_.h,
              .x_row_bytes = work_.h_row_bytes,
              .cols = args_.intermediate},
             expert, tiles, [this](auto... rest) { store_y(rest...); });
  }
  combine({tiles.begin * kTileRows, tiles.end * kTileRows});
}

void ExpertRun::store_y(std::int64_t expert, Range tiles, Range inputs, const float* sums) const {
  const formats::Bf16* bias =
      args_.down.bias == nullptr ? nullptr : args_.down.bias + expert * args_.hidden;
  for (std::int64_t input = inputs.begin; input < inputs.end; ++input, sums += kTileRows) {
    for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const float* of_tile = sums + (tile - tiles.begin) * kTileSums;
      const std::int64_t column = tile * kTileRows;
      float* y = work_.y + input * args_.hidden + column;
      for (std::int64_t i = 0; i < kTileRows; ++i) {
        y[i] = bias == nullptr ? of_tile[i] : of_tile[i] + bf16_to_f32(bias[column + i]);
      }
    }
  }
}

void ExpertRun::combine(Range columns) const {
  const std::int64_t count = columns.end - columns.begin;
  for (std::int64_t token = 0; token < args_.num_tokens; ++token) {
    float* out = args_.out + token * args_.hidden + columns.begin;
    for (std::int64_t routed = token * args_.top_k; routed < (token + 1) * args_.top_k; ++routed) {
      const float* y = work_.y + work_.position[routed] * std::int64_t{args_.hidden};
      const float weight = args_.weights[routed];
      for (std::int64_t i = 0; i < count; ++i) {
        out[i] += weight * y[columns.begin + i];
      }
    }
  }
}

}  // namespace

Status run_experts(const MoeArgs& args, const Exec& exec, const ExpertMath& math) {
  ExpertRun(args, math).run(exec);
  return {};
}

}  // namespace nibble::kernels
