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
constexpr std::size_t kInt8Block = 32;

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

// What int8 leaves of each value: int8_groups.h has the rule.
void quantize(std::vector<double>& values) {
  for (std::size_t first = 0; first < values.size(); first += kInt8Block) {
    float most = 0.0F;
    bool is_finite = true;
    for (std::size_t i = first; i < first + kInt8Block; ++i) {
      is_finite = is_finite && std::isfinite(values[i]);
      most = std::max(most, std::abs(static_cast<float>(values[i])));
    }
    for (std::size_t i = first; i < first + kInt8Block; ++i) {
      const float quotient = static_cast<float>(values[i]) * (127.0F / most);
      values[i] = !is_finite         ? std::nan("")
                  : most < 0x1p-118F ? 0.0
                                     : std::nearbyint(quotient) * double{most / 127.0F};
    }
  }
}

// Row `row` of W_e x + b_e.
double project(const Matrix& matrix, std::int64_t row, const std::vector<double>& x) {
  const std::int64_t at = matrix.expert * matrix.rows + row;
  double sum = matrix.all.bias == nullptr ? 0.0 : double{bf16_to_f32(matrix.all.bias[at])};
  std::visit(
      [&](const auto& rows) {
        for (std::int64_t col = 0; col < matrix.cols; ++col) {
          sum += value_at(rows, matrix, at * matrix.cols + col) * x[static_cast<std::size_t>(col)];
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
  const bool is_int8 = args.inputs == ExpertInputs::kInt8;
  std::vector<double> x;
  for (std::int64_t col = 0; col < args.hidden; ++col) {
    x.push_back(load_element(args.x, args.x_dtype, std::int64_t{token} * args.hidden + col));
  }
  if (is_int8) {
    quantize(x);
  }
  std::vector<double> h;
  for (std::int64_t i = 0; i < args.intermediate; ++i) {
    const double u = project(gate_up, 2 * i, x);
    const double l = project(gate_up, 2 * i + 1, x);
    const double gate = std::min(u, double{args.limit});
    const double up = std::clamp(l, -double{args.limit}, double{args.limit});
    const double value = (up + 1.0) * gate / (1.0 + std::exp(-args.alpha * gate));
    const auto stored = static_cast<float>(value);
    const bool is_bf16 = args.x_dtype == DType::kBF16 && !is_int8;
    h.push_back(is_bf16 ? bf16_to_f32(formats::f32_to_bf16(stored)) : stored);
  }
  if (is_int8) {
    quantize(h);
  }
  for (std::int64_t n = 0; n < args.hidden; ++n) {
    const double y = project(down, n, h);
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
