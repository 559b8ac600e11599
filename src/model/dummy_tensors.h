// The tensors of a checkpoint that is not there: seeded random weights, byte for byte those of the
// files that `nibble make-model` writes.
//
// Vectors are in memory at once. Matrices have addresses and nothing behind them: a host fills them
// with fill(), a device makes its own from their recipes and never sees the host's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "model/config.h"
#include "model/random_weights.h"
#include "nibble/status.h"
#include "tensor/buffer.h"
#include "tensor/exec.h"
#include "tensor/reservation.h"
#include "weights/checkpoint.h"

namespace nibble::model {

class DummyTensors {
 public:
  // kUnsupported: experts that are not MXFP4. kExhausted: no address space.
  static Result<DummyTensors> create(const ModelConfig& config, std::uint64_t seed);

  // All tensors by their names, valid as long as this object.
  weights::Checkpoint checkpoint() const;
  std::int64_t bytes() const { return bytes_; }

  // Puts the matrices into host memory. kExhausted when the system gives none.
  Status fill(const Exec& exec);

  // The matrix that begins at `address`, null when none does.
  const weights::TensorSpec* matrix_at(const void* address) const;
  Result<RandomRecipe> recipe(const weights::TensorSpec& spec) const {
    return random_recipe(seed_, spec);
  }

 private:
  struct Tensor {
    weights::TensorSpec spec;
    TensorView view;
  };

  std::uint64_t seed_ = 0;
  std::int64_t bytes_ = 0;  // of all tensors
  Buffer<std::byte> vectors_;
  Reservation matrices_;
  std::map<const void*, Tensor> tensors_;
};

}  // namespace nibble::model
