#include "model/weight_placement.h"

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <utility>
#include <variant>

#include "base/memory_nodes.h"
#include "kernels/common/row_share.h"
#include "kernels/gemm/gemm_tile.h"

namespace nibble::model {
namespace {

using kernels::kTileRows;

struct Part {
  DenseMatrix matrix;
  std::int64_t rows = 0;
};

class Shares {
 public:
  explicit Shares(int workers) : workers_(workers) {}

  void dense(std::initializer_list<Part> parts, std::int64_t cols) {
    std::int64_t num_tiles = 0;
    for (const Part& part : parts) {
      num_tiles += tiles_of(part.rows);
    }
    std::int64_t first = 0;
    for (const Part& part : parts) {
      const std::int64_t row_bytes = cols * dtype_bits(part.matrix.dtype) / 8;
      for (int worker = 0; worker < workers_; ++worker) {
        const Range tiles = kernels::gemm_tile_share(num_tiles, workers_, worker);
        const Range rows{std::clamp<std::int64_t>((tiles.begin - first) * kTileRows, 0, part.rows),
                         std::clamp<std::int64_t>((tiles.end - first) * kTileRows, 0, part.rows)};
        add(part.matrix.data, rows, row_bytes, worker);
      }
      first += tiles_of(part.rows);
    }
  }

  void experts(const kernels::ExpertMatrix& matrix, std::int64_t num_experts, std::int64_t rows,
               std::int64_t cols, std::int64_t unit) {
    for (std::int64_t expert = 0; expert < num_experts; ++expert) {
      for (int worker = 0; worker < workers_; ++worker) {
        const Range tiles = kernels::expert_tile_share(rows / kTileRows, unit, workers_, worker);
        expert_rows(
            matrix.weight, cols,
            {expert * rows + tiles.begin * kTileRows, expert * rows + tiles.end * kTileRows},
            worker);
      }
    }
  }

  std::vector<WorkerBytes> take() { return std::move(shares_); }

 private:
  static std::int64_t tiles_of(std::int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

  void expert_rows(const kernels::ExpertRows& matrix, std::int64_t cols, Range rows, int worker) {
    if (const auto* mxfp4 = std::get_if<kernels::Mxfp4Rows>(&matrix)) {
      add(mxfp4->blocks, rows, cols / 2, worker);
      add(mxfp4->scales, rows, cols / 32, worker);
    } else if (const auto* nvfp4 = std::get_if<kernels::Nvfp4Rows>(&matrix)) {
      add(nvfp4->blocks, rows, cols / 2, worker);
      add(nvfp4->scales, rows, cols / 16, worker);
    } else {
      add(std::get<kernels::Bf16Rows>(matrix).values, rows, cols * 2, worker);
    }
  }

  void add(const void* data, Range rows, std::int64_t row_bytes, int worker) {
    if (rows.begin < rows.end) {
      shares_.push_back({static_cast<const std::byte*>(data) + rows.begin * row_bytes,
                         (rows.end - rows.begin) * row_bytes, worker});
    }
  }

  int workers_;
  std::vector<WorkerBytes> shares_;
};

}  // namespace

std::vector<WorkerBytes> bytes_of_workers(const ModelConfig& config, const ModelArrays& arrays,
                                          bool int8_experts, int workers) {
  Shares shares(workers);
  const std::int64_t q_rows = std::int64_t{config.num_heads} * config.head_dim;
  const std::int64_t kv_rows = std::int64_t{config.num_kv_heads} * config.head_dim;
  for (const LayerArrays& layer : arrays.layers) {
    shares.dense({{layer.q, q_rows}, {layer.k, kv_rows}, {layer.v, kv_rows}}, config.hidden);
    shares.dense({{layer.o, config.hidden}}, q_rows);
    shares.dense({{layer.router, config.num_experts}}, config.hidden);
    shares.experts(layer.gate_up, config.num_experts, std::int64_t{2} * config.intermediate,
                   config.hidden, int8_experts ? kernels::kInt8UnitTiles : 1);
    shares.experts(layer.down, config.num_experts, config.hidden, config.intermediate, 1);
  }
  shares.dense({{arrays.head, config.vocab}}, config.hidden);
  return shares.take();
}

std::int64_t place_weights(const std::vector<WorkerBytes>& shares, ThreadPool& pool) {
  std::atomic<std::int64_t> num_there = 0;
  pool.run([&](int worker) {
    for (const WorkerBytes& share : shares) {
      if (share.worker == worker) {
        num_there += bring_to_node(share.begin, share.bytes, pool.node_of(worker));
      }
    }
  });
  return num_there;
}

}  // namespace nibble::model
