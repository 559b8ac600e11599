#include "model/model_arrays.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "base/propagate.h"

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

ModelArrays place_arrays(const ModelArrays& host, const ModelConfig& config, Arena& arena) {
  ModelArrays out = host;
  const auto place = [&](const void*& pointer, std::int64_t bytes) {
    std::byte* const there = arena.take<std::byte>(bytes);
    pointer = pointer == nullptr ? nullptr : there;
  };
  Walk(config, place).model(out);
  return out;
}

Status upload_arrays(const ModelArrays& host, const ModelArrays& device, const ModelConfig& config,
                     Uploader& uploader) {
  std::vector<std::pair<const void*, std::int64_t>> sources;
  ModelArrays walked = host;
  Walk(config, [&](const void*& pointer, std::int64_t bytes) {
    sources.emplace_back(pointer, bytes);
  }).model(walked);
  Status status;
  std::size_t next = 0;
  walked = device;
  Walk(config, [&](const void*& pointer, std::int64_t /*bytes*/) {
    const auto& [from, bytes] = sources[next++];
    if (status.ok() && from != nullptr) {
      status = uploader.copy(const_cast<void*>(pointer), from, bytes);
    }
  }).model(walked);
  NIBBLE_RETURN_IF_ERROR(status);
  return uploader.finish();
}

}  // namespace nibble::model
