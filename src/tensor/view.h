// A tensor somewhere in memory: not owned, row-major, contiguous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace nibble {

using Shape = std::vector<std::int64_t>;

struct TensorView {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  std::int64_t num_elems() const {
    std::int64_t product = 1;
    for (const std::int64_t extent : shape) {
      product *= extent;
    }
    return product;
  }
  std::int64_t bytes() const { return num_elems() * dtype_bits(dtype) / 8; }
};

// "[2, 3]"
inline std::string shape_text(const Shape& shape) {
  std::string out = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    out += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
  }
  return out + "]";
}

}  // namespace nibble
