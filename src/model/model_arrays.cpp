#include "model/model_arrays.h"

#include <cmath>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/error.h"
#include "formats/expert_tiles.h"
#include "kernels/convert/expert_tiles.h"
#include "kernels/random/random_tiles.h"
#include "tensor/buffer.h"

namespace nibble::model {
namespace {

// Calls visit(pointer, bytes) for every array, in an order that the config fixes. `visit` may
// change the pointer.
template <typename Visit>
class Walk {
 public:
  Walk(const ModelConfig& config, Visit visit) : config_(config), visit_(std::move(visit)) {}

  void model(ModelArrays& arrays) {
    matrix(arrays.embedding, config_.vocab, config_.hidden);
    matrix(arrays.head, config_.vocab, config_.hidden);
    array(arrays.final_norm, config_.hidden);
    array(arrays.inv_freq, config_.head_dim / 2);
    for (LayerArrays& one : arrays.layers) {
      layer(one);
    }
  }

 private:
  void layer(LayerArrays& arrays) {
    const std::int64_t q_width = std::int64_t{config_.num_heads} * config_.head_dim;
    const std::int64_t kv_width = std::int64_t{config_.num_kv_heads} * config_.head_dim;
    array(arrays.attention_norm, config_.hidden);
    matrix(arrays.q, q_width, config_.hidden);
    matrix(arrays.k, kv_width, config_.hidden);
    matrix(arrays.v, kv_width, config_.hidden);
    array(arrays.qkv_bias, q_width + 2 * kv_width);
    array(arrays.sinks, config_.num_heads);
    matrix(arrays.o, config_.hidden, q_width);
    array(arrays.o_bias, config_.hidden);
    array(arrays.mlp_norm, config_.hidden);
    matrix(arrays.router, config_.num_experts, config_.hidden);
    array(arrays.router_bias, config_.num_experts);
    experts(arrays.gate_up, 2 * std::int64_t{config_.intermediate}, config_.hidden);
    experts(arrays.down, config_.hidden, config_.intermediate);
  }

  template <typename T>
  void array(const T*& pointer, std::int64_t count) {
    const void* bytes = pointer;
    visit_(bytes, count * static_cast<std::int64_t>(sizeof(T)));
    pointer = static_cast<const T*>(bytes);
  }
  void matrix(DenseMatrix& matrix, std::int64_t rows, std::int64_t cols) {
    visit_(matrix.data, rows * cols * dtype_bits(matrix.dtype) / 8);
  }
  void experts(kernels::ExpertMatrix& matrix, std::int64_t rows, std::int64_t cols) {
    const std::int64_t all_rows = config_.num_experts * rows;
    array(matrix.bias, all_rows);
    std::visit([&](auto& weight) { expert_rows(weight, all_rows, cols); }, matrix.weight);
  }
  void expert_rows(kernels::Mxfp4Rows& weight, std::int64_t rows, std::int64_t cols) {
    array(weight.blocks, rows * cols / 2);
    array(weight.scales, rows * cols / 32);
  }
  void expert_rows(kernels::Nvfp4Rows& weight, std::int64_t rows, std::int64_t cols) {
    array(weight.blocks, rows * cols / 2);
    array(weight.scales, rows * cols / 16);
    array(weight.globals, config_.num_experts);
  }
  void expert_rows(kernels::Bf16Rows& weight, std::int64_t rows, std::int64_t cols) {
    array(weight.values, rows * cols);
  }

  const ModelConfig& config_;
  Visit visit_;
};

}  // namespace

ModelArrays host_arrays(const ModelWeights& weights, const float* inv_freq) {
  ModelArrays out{.embedding = weights.embedding,
                  .head = weights.head,
                  .final_norm = weights.final_norm.data(),
                  .inv_freq = inv_freq};
  for (const LayerWeights& layer : weights.layers) {
    out.layers.push_back({.attention_norm = layer.attention_norm.data(),
                          .q = layer.q,
                          .k = layer.k,
                          .v = layer.v,
                          .qkv_bias = layer.qkv_bias.data(),
                          .sinks = layer.sinks.data(),
                          .o = layer.o,
                          .o_bias = layer.o_bias.data(),
                          .mlp_norm = layer.mlp_norm.data(),
                          .router = layer.router,
                          .router_bias = layer.router_bias.data(),
                          .gate_up = layer.gate_up,
                          .down = layer.down});
  }
  return out;
}

bool uses_expert_tiles(const ModelArrays& host, DType activation) {
  return activation == DType::kBF16 && !host.layers.empty() &&
         std::holds_alternative<kernels::Mxfp4Rows>(host.layers[0].gate_up.weight) &&
         std::holds_alternative<kernels::Mxfp4Rows>(host.layers[0].down.weight);
}

namespace {

struct TileShape {
  std::int64_t rows = 0;  // of one expert
  std::int64_t cols = 0;
  formats::ExpertTileExtent extent;
};

TileShape tile_shape(std::int64_t rows, std::int64_t cols) {
  return {rows, cols,
          formats::expert_tile_extent(formats::LogicalRows(rows), formats::LogicalCols(cols))};
}
TileShape gate_up_shape(const ModelConfig& config) {
  return tile_shape(2 * std::int64_t{config.intermediate}, config.hidden);
}
TileShape down_shape(const ModelConfig& config) {
  return tile_shape(config.hidden, config.intermediate);
}

kernels::Mxfp4Tiles place_tiles(const TileShape& shape, std::int32_t num_experts,
                                kernels::ExpertMatrix& rows, Arena& arena) {
  rows.weight = kernels::Mxfp4Rows{};
  return {.values = arena.take<std::uint8_t>(num_experts * shape.extent.value_bytes()),
          .scales = arena.take<std::uint8_t>(num_experts * shape.extent.scale_bytes()),
          .factors = arena.take<float>(num_experts)};
}

// One matrix of one layer.
class TilePacker {
 public:
  TilePacker(const TileShape& shape, std::int32_t num_experts)
      : shape_(shape),
        num_experts_(num_experts),
        values_(static_cast<std::size_t>(num_experts * shape.extent.value_bytes())),
        scales_(static_cast<std::size_t>(num_experts * shape.extent.scale_bytes())),
        factors_(static_cast<std::size_t>(num_experts)),
        statuses_(static_cast<std::size_t>(num_experts)) {}

  Status upload(const kernels::ExpertMatrix& matrix, const kernels::Mxfp4Tiles& to,
                ThreadPool& pool, Uploader& uploader) {
    const auto& rows = std::get<kernels::Mxfp4Rows>(matrix.weight);
    pool.run_split(num_experts_, 1, [&](int /*worker*/, Range experts) {
      for (std::int64_t expert = experts.begin; expert < experts.end; ++expert) {
        pack(rows, expert);
      }
    });
    for (const Status& status : statuses_) {
      NIBBLE_RETURN_IF_ERROR(Status(status));
    }
    NIBBLE_RETURN_IF_ERROR(copy(to.values, values_, uploader));
    NIBBLE_RETURN_IF_ERROR(copy(to.scales, scales_, uploader));
    return copy(to.factors, factors_, uploader);
  }

 private:
  void pack(const kernels::Mxfp4Rows& rows, std::int64_t expert) {
    const auto at = static_cast<std::size_t>(expert);
    const std::int64_t blocks = shape_.rows * shape_.cols / 32;
    Result<std::int32_t> exponent = kernels::pack_expert_tiles(
        {.blocks = rows.blocks + expert * blocks * 16,
         .scales = rows.scales + expert * blocks,
         .rows = formats::LogicalRows(shape_.rows),
         .cols = formats::LogicalCols(shape_.cols)},
        {.values = values_.data() + expert * shape_.extent.value_bytes(),
         .scales = scales_.data() + expert * shape_.extent.scale_bytes()});
    if (exponent) {
      factors_[at] = std::ldexp(1.0F, *exponent);
    } else {
      statuses_[at] = exponent.error();
    }
  }
  template <typename T>
  static Status copy(const T* to, const Buffer<T>& from, Uploader& uploader) {
    return uploader.copy(const_cast<T*>(to), from.data(),
                         static_cast<std::int64_t>(from.size_bytes()));
  }

  TileShape shape_;
  std::int32_t num_experts_;
  Buffer<std::uint8_t> values_;
  Buffer<std::uint8_t> scales_;
  Buffer<float> factors_;
  std::vector<Status> statuses_;
};

}  // namespace

ModelArrays place_arrays(const ModelArrays& host, const ModelConfig& config, bool has_tiles,
                         Arena& arena) {
  ModelArrays out = host;
  for (LayerArrays& layer : out.layers) {
    if (has_tiles) {
      layer.gate_up_tiles =
          place_tiles(gate_up_shape(config), config.num_experts, layer.gate_up, arena);
      layer.down_tiles = place_tiles(down_shape(config), config.num_experts, layer.down, arena);
    }
  }
  Walk(config, [&](const void*& pointer, std::int64_t bytes) {
    if (pointer != nullptr) {
      pointer = arena.take<std::byte>(bytes);
    }
  }).model(out);
  for (LayerArrays& layer : out.layers) {
    layer.gate_up_tiles.bias = layer.gate_up.bias;
    layer.down_tiles.bias = layer.down.bias;
  }
  return out;
}

namespace {

Status make_tiles(const DummyTensors& dummy, const kernels::ExpertMatrix& host,
                  const kernels::Mxfp4Tiles& to, const TileShape& shape, std::int32_t num_experts,
                  const Exec& exec) {
  const auto& rows = std::get<kernels::Mxfp4Rows>(host.weight);
  const weights::TensorSpec* blocks = dummy.matrix_at(rows.blocks);
  const weights::TensorSpec* scales = dummy.matrix_at(rows.scales);
  NIBBLE_CHECK(blocks != nullptr && scales != nullptr);
  NIBBLE_ASSIGN_OR_RETURN(const RandomRecipe block_recipe, dummy.recipe(*blocks));
  NIBBLE_ASSIGN_OR_RETURN(const RandomRecipe scale_recipe, dummy.recipe(*scales));
  return kernels::random_tiles({.values = const_cast<std::uint8_t*>(to.values),
                                .scales = const_cast<std::uint8_t*>(to.scales),
                                .factors = const_cast<float*>(to.factors),
                                .blocks_key = block_recipe.key,
                                .scales_key = scale_recipe.key,
                                .middle_scale = scale_recipe.middle_scale,
                                .num_experts = num_experts,
                                .rows = static_cast<std::int32_t>(shape.rows),
                                .cols = static_cast<std::int32_t>(shape.cols)},
                               exec);
}

}  // namespace

Status make_arrays(const DummyTensors& dummy, const ModelArrays& host, const ModelArrays& device,
                   const ModelConfig& config, Uploader& uploader, const Exec& exec) {
  const auto make = [&](void* to, const void* from, std::int64_t bytes) -> Result<bool> {
    const weights::TensorSpec* spec = dummy.matrix_at(from);
    if (spec == nullptr) {
      return false;
    }
    NIBBLE_ASSIGN_OR_RETURN(const RandomRecipe recipe, dummy.recipe(*spec));
    NIBBLE_RETURN_IF_ERROR(kernels::random_fill(recipe.fill(to, 0, bytes), exec));
    return true;
  };
  NIBBLE_RETURN_IF_ERROR(upload_arrays(host, device, config, uploader, make));
  for (std::size_t index = 0; index < host.layers.size(); ++index) {
    const LayerArrays& from = host.layers[index];
    const LayerArrays& to = device.layers[index];
    if (to.gate_up_tiles.values != nullptr) {
      NIBBLE_RETURN_IF_ERROR(make_tiles(dummy, from.gate_up, to.gate_up_tiles,
                                        gate_up_shape(config), config.num_experts, exec));
      NIBBLE_RETURN_IF_ERROR(make_tiles(dummy, from.down, to.down_tiles, down_shape(config),
                                        config.num_experts, exec));
    }
  }
  return {};
}

Status upload_tiles(const ModelArrays& host, const ModelArrays& device, const ModelConfig& config,
                    ThreadPool& pool, Uploader& uploader) {
  TilePacker gate_up(gate_up_shape(config), config.num_experts);
  TilePacker down(down_shape(config), config.num_experts);
  for (std::size_t layer = 0; layer < host.layers.size(); ++layer) {
    Status status = gate_up.upload(host.layers[layer].gate_up, device.layers[layer].gate_up_tiles,
                                   pool, uploader);
    if (status.ok()) {
      status =
          down.upload(host.layers[layer].down, device.layers[layer].down_tiles, pool, uploader);
    }
    if (!status.ok()) {
      return error(status.code(), "layer {}: {}", layer, status.message());
    }
  }
  return uploader.finish();
}

Status upload_arrays(const ModelArrays& host, const ModelArrays& device, const ModelConfig& config,
                     Uploader& uploader, const ArrayMaker& make) {
  std::vector<std::pair<const void*, std::int64_t>> sources;
  ModelArrays walked = host;
  Walk(config, [&](const void*& pointer, std::int64_t bytes) {
    sources.emplace_back(pointer, bytes);
  }).model(walked);
  const auto fill = [&](void* to, const void* from, std::int64_t bytes) -> Status {
    if (make) {
      NIBBLE_ASSIGN_OR_RETURN(const bool is_made, make(to, from, bytes));
      if (is_made) {
        return {};
      }
    }
    return uploader.copy(to, from, bytes);
  };
  Status status;
  std::size_t next = 0;
  walked = device;
  Walk(config, [&](const void*& pointer, std::int64_t /*bytes*/) {
    const auto& [from, bytes] = sources[next++];
    if (status.ok() && from != nullptr && pointer != nullptr) {
      status = fill(const_cast<void*>(pointer), from, bytes);
    }
  }).model(walked);
  NIBBLE_RETURN_IF_ERROR(status);
  return uploader.finish();
}

}  // namespace nibble::model
