#include "model/dummy_tensors.h"

#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/tensor_list.h"
#include "tensor/arena.h"

namespace nibble::model {
namespace {

// A matrix is filled in pieces of its rows by the kernel; vectors are widened on the host.
bool is_vector(const weights::TensorSpec& spec) { return spec.shape.size() == 1; }

TensorView view_of(const weights::TensorSpec& spec) {
  return {.dtype = spec.dtypes.front(), .shape = spec.shape};
}

}  // namespace

Result<DummyTensors> DummyTensors::create(const ModelConfig& config, std::uint64_t seed) {
  if (!config.has_mxfp4_experts) {
    return error(Code::kUnsupported, "dummy weights: want a config with MXFP4 experts, found {}",
                 expert_format_name(configured_expert_format(config)));
  }
  const std::vector<weights::TensorSpec> specs = tensor_list(config, ExpertFormat::kMxfp4);
  const auto lay_out = [&](Arena& vectors, Arena& matrices, auto&& place) {
    for (const weights::TensorSpec& spec : specs) {
      place(spec, (is_vector(spec) ? vectors : matrices).take<std::byte>(view_of(spec).bytes()));
    }
  };
  Arena vector_size;
  Arena matrix_size;
  lay_out(vector_size, matrix_size, [](const weights::TensorSpec&, std::byte*) {});
  DummyTensors out;
  out.seed_ = seed;
  out.vectors_ = Buffer<std::byte>(static_cast<std::size_t>(vector_size.bytes()));
  NIBBLE_ASSIGN_OR_RETURN(out.matrices_, Reservation::take(matrix_size.bytes()));
  Arena vectors(out.vectors_.data());
  Arena matrices(out.matrices_.data());
  Status status;
  lay_out(vectors, matrices, [&](const weights::TensorSpec& spec, std::byte* data) {
    TensorView view = view_of(spec);
    view.data = data;
    out.bytes_ += view.bytes();
    if (is_vector(spec) && status.ok()) {
      status = fill_random(seed, spec, 0, {data, static_cast<std::size_t>(view.bytes())});
    }
    out.tensors_.emplace(data, Tensor{spec, std::move(view)});
  });
  NIBBLE_RETURN_IF_ERROR(status);
  return out;
}

weights::Checkpoint DummyTensors::checkpoint() const {
  std::vector<std::pair<std::string, TensorView>> views;
  views.reserve(tensors_.size());
  for (const auto& [data, tensor] : tensors_) {
    views.emplace_back(tensor.spec.name, tensor.view);
  }
  return weights::Checkpoint::of_views("dummy weights", views);
}

Status DummyTensors::fill(const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(matrices_.make_writable());
  for (const auto& [data, tensor] : tensors_) {
    if (is_vector(tensor.spec)) {
      continue;
    }
    NIBBLE_ASSIGN_OR_RETURN(const RandomRecipe made, recipe(tensor.spec));
    NIBBLE_RETURN_IF_ERROR(
        kernels::random_fill(made.fill(const_cast<void*>(data), 0, tensor.view.bytes()), exec));
  }
  return {};
}

const weights::TensorSpec* DummyTensors::matrix_at(const void* address) const {
  const auto found = tensors_.find(address);
  return found == tensors_.end() || is_vector(found->second.spec) ? nullptr : &found->second.spec;
}

}  // namespace nibble::model
