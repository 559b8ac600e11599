#include <algorithm>
#include <cmath>
#include <vector>

#include "formats/e2m1.h"
#include "formats/nvfp4.h"
#include "formats/ue8m0.h"
#include "kernels/common/element.h"
#include "kernels/moe/moe.h"

namespace nibble::kernels {
namespace {

constexpr std::int64_t kMxBlock = 32;
constexpr std::int64_t kNvBlock = 16;

// One expert's matrix.
struct Matrix {
  const ExpertMatrix& all;
  std::int64_t expert = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

// `at` counts over all experts.
double value_at(const Bf16Rows& bf16, const Matrix& /*matrix*/, std::int64_t at) {
  return bf16_to_f32(bf16.values[at]);
}
double value_at(const Mxfp4Rows& mxfp4, const Matrix& /*matrix*/, std::int64_t at) {
  const std::uint8_t pair = mxfp4.blocks[at / 2];
  const auto code = static_cast<std::uint8_t>(at % 2 == 0 ? pair & 0xFU : pair >> 4U);
  return double{formats::e2m1_to_f32(code)} * formats::ue8m0_to_f32(mxfp4.scales[at / kMxBlock]);
}
double value_at(const Nvfp4Rows& nvfp4, const Matrix& matrix, std::int64_t at) {
  const float step = formats::nvfp4_step(nvfp4.scales[at / kNvBlock], nvfp4.globals[matrix.expert]);
  return formats::e2m1_to_f32(formats::e2m1_at(nvfp4.blocks, at)) * step;
}

// Row `row` of W_e x + b_e.
template <typename Input>
double project(const Matrix& matrix, std::int64_t row, const Input& x) {
  const std::int64_t at = matrix.expert * matrix.rows + row;
  double sum = matrix.all.bias == nullptr ? 0.0 : double{bf16_to_f32(matrix.all.bias[at])};
  std::visit(
      [&](const auto& rows) {
        for (std::int64_t col = 0; col < matrix.cols; ++col) {
          sum += value_at(rows, matrix, at * matrix.cols + col) * x(col);
        }
      },
      matrix.all.weight);
  return sum;
}

void expert_forward(const MoeArgs& args, std::int32_t token, std::int32_t slot) {
  const std::int64_t routed = std::int64_t{token} * args.top_k + slot;
  const std::int64_t expert = args.ids[routed];
  const Matrix gate_up{args.gate_up, expert, std::int64_t{2} * args.intermediate, args.hidden};
  const Matrix down{args.down, expert, args.hidden, args.intermediate};
  const auto x = [&](std::int64_t col) {
    return double{load_element(args.x, args.x_dtype, std::int64_t{token} * args.hidden + col)};
  };
  std::vector<float> h(static_cast<std::size_t>(args.intermediate));
  for (std::int64_t i = 0; i < args.intermediate; ++i) {
    const double u = project(gate_up, 2 * i, x);
    const double l = project(gate_up, 2 * i + 1, x);
    const double gate = std::min(u, double{args.limit});
    const double up = std::clamp(l, -double{args.limit}, double{args.limit});
    const double value = (up + 1.0) * gate / (1.0 + std::exp(-args.alpha * gate));
    store_element(h.data(), DType::kF32, i, static_cast<float>(value));
    if (args.x_dtype == DType::kBF16) {
      h[static_cast<std::size_t>(i)] =
          bf16_to_f32(formats::f32_to_bf16(h[static_cast<std::size_t>(i)]));
    }
  }
  for (std::int64_t n = 0; n < args.hidden; ++n) {
    const double y = project(
        down, n, [&](std::int64_t col) { return double{h[static_cast<std::size_t>(col)]}; });
    float& out = args.out[std::int64_t{token} * args.hidden + n];
    out = static_cast<float>(out + args.weights[routed] * y);
  }
}

}  // namespace

Status moe_ref(const MoeArgs& args) {
  for (std::int32_t token = 0; token < args.num_tokens; ++token) {
    for (std::int32_t slot = 0; slot < args.top_k; ++slot) {
      expert_forward(args, token, slot);
    }
  }
  return {};
}

}  // namespace nibble::kernels
