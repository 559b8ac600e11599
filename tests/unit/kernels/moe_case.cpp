#include "unit/kernels/moe_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "support/counter_rng.h"

namespace nibble::kernels {
namespace {

using testing_support::CounterRng;
using testing_support::ErrorBound;
using testing_support::kUnitF32;
using testing_support::roundings;
using testing_support::sum_error;

constexpr double kCodeValues[] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6};

struct Bounded {
  double value = 0.0;
  double magnitude = 0.0;  // of the terms that were summed
  ErrorBound error;
};

// What int8 makes of a row, block by block: a value moves by a whole step where its error crosses a
// border between two numbers, and by its share of the scale's error.
void quantize(std::vector<Bounded>& row) {
  constexpr std::size_t kBlock = 32;
  constexpr double kRoundings = 4.0 * kUnitF32;  // of scale, reciprocal and product, and one more
  for (std::size_t first = 0; first < row.size(); first += kBlock) {
    float most = 0.0F;
    ErrorBound most_error;
    for (std::size_t i = first; i < first + kBlock; ++i) {
      most = std::max(most, std::abs(static_cast<float>(row[i].value)));
      most_error.hard = std::max(most_error.hard, row[i].error.hard);
      most_error.likely = std::max(most_error.likely, row[i].error.likely);
    }
    const double step = most / 127.0F;
    const float inverse = 127.0F / most;
    for (std::size_t i = first; i < first + kBlock; ++i) {
      const auto value = static_cast<float>(row[i].value);
      const double q = most == 0.0F ? 0.0 : std::nearbyint(value * inverse);
      row[i].value = q * step;
      if (most_error.hard == 0.0) {
        continue;
      }
      const double reach = (row[i].error.hard + most_error.hard) / step + 127.0 * kRoundings;
      const double exact = value / step;
      const double moved = std::max(std::abs(std::nearbyint(exact + reach) - q),
                                    std::abs(std::nearbyint(exact - reach) - q));
      const double share = std::abs(q) / 127.0;
      row[i].error = most_error * share + ErrorBound{moved * step, moved * step} +
                     roundings(4.0, std::abs(q * step));
    }
  }
}

// W x + b, with what each x is off by before. In int8 a term passes through the product of its
// scales, an addition for each 16 blocks, four for the lanes and the bias.
Bounded project(const MoeMatrix& matrix, std::int64_t row, const std::vector<Bounded>& x,
                ExpertInputs inputs) {
  Bounded out;
  out.value = formats::bf16_to_f32(matrix.bias[static_cast<std::size_t>(row)]);
  out.magnitude = std::abs(out.value);
  ErrorBound carried;
  const double* weights = &matrix.values[static_cast<std::size_t>(row * matrix.cols)];
  for (std::int64_t col = 0; col < matrix.cols; ++col) {
    const Bounded& each = x[static_cast<std::size_t>(col)];
    out.value += weights[col] * each.value;
    out.magnitude += std::abs(weights[col]) * (std::abs(each.value) + each.error.hard);
    carried = carried + each.error * weights[col];
  }
  const bool is_int8 = inputs == ExpertInputs::kInt8;
  out.error = carried + sum_error(is_int8 ? matrix.cols / 512 + 7 : matrix.cols + 1, out.magnitude);
  return out;
}

// The activation: derivatives at most 1.1 |l + 1| and |g sigmoid|; its own steps, of which the
// exponential's argument carries |alpha g| units.
Bounded activate(const Bounded& u, const Bounded& l, DType dtype) {
  const double alpha = 1.702F;
  const double g = std::min(u.value, 7.0);
  const double up = std::clamp(l.value, -7.0, 7.0);
  const double gated = g / (1.0 + std::exp(-alpha * g));
  Bounded h;
  h.value = (up + 1.0) * gated;
  const double steps = 12.0 + 2.0 * std::abs(alpha * g);
  h.error = l.error * gated + u.error * (1.1 * (std::abs(up + 1.0) + l.error.hard)) +
            roundings(steps, (std::abs(up) + 1.0) * std::abs(gated)) + ErrorBound{0x1p-126, 0.0};
  if (dtype != DType::kBF16) {
    return h;
  }
  // Rounded to bf16: no error at all unless the error crosses a border between two numbers.
  const auto round = [](double value) {
    return double{formats::bf16_to_f32(formats::f32_to_bf16(static_cast<float>(value)))};
  };
  const double exact = h.value;
  h.value = round(exact);
  const double hard = std::max(std::abs(round(exact + h.error.hard) - h.value),
                               std::abs(round(exact - h.error.hard) - h.value));
  h.error = {hard, hard};
  return h;
}

}  // namespace

const char* form_name(ExpertForm form) {
  switch (form) {
    case ExpertForm::kMxfp4: return "mxfp4";
    case ExpertForm::kBf16: return "bf16";
    case ExpertForm::kNvfp4: return "nvfp4";
  }
  return "unknown";
}

MoeMatrix::MoeMatrix(std::int64_t experts, std::int64_t num_rows, std::int64_t num_cols,
                     ExpertForm given, std::uint64_t seed)
    : rows(num_rows), cols(num_cols), form(given) {
  const CounterRng rng(seed);
  const CounterRng scale_rng(seed + 2);
  const std::int64_t elems = experts * rows * cols;
  bias = to_bf16(CounterRng(seed + 1).normals(experts * rows, 0.5F));
  // About 3 / sqrt(cols), so that some gates pass the clamp at 7.
  const int exponent = static_cast<int>(std::lround(-0.5 * std::log2(cols)));
  if (form == ExpertForm::kBf16) {
    bf16 = to_bf16(rng.normals(elems, std::ldexp(3.0F, exponent)));
    for (const formats::Bf16 value : bf16) {
      values.push_back(formats::bf16_to_f32(value));
    }
    return;
  }
  for (std::int64_t i = 0; i < elems / 2; ++i) {
    blocks.push_back(static_cast<std::uint8_t>(rng.word(static_cast<std::uint64_t>(i)) >> 24U));
  }
  const bool is_mxfp4 = form == ExpertForm::kMxfp4;
  for (std::int64_t i = 0; i < elems / (is_mxfp4 ? 32 : 16); ++i) {
    // Within a binade of one, either way; e4m3 with every mantissa.
    const int place = scale_rng.below(static_cast<std::uint64_t>(i), is_mxfp4 ? 3 : 17);
    scales.push_back(
        static_cast<std::uint8_t>(is_mxfp4 ? 126 + exponent + place : 0x38 - 8 + place));
  }
  for (std::int64_t expert = 0; expert < experts && !is_mxfp4; ++expert) {
    globals.push_back(std::ldexp(1.0F + static_cast<float>(expert % 7) / 7.3F, exponent));
  }
  decode();
}

void MoeMatrix::decode() {
  values.clear();
  for (std::size_t i = 0; i < blocks.size() * 2; ++i) {
    const int code = i % 2 == 0 ? blocks[i / 2] & 15 : blocks[i / 2] >> 4;
    if (form == ExpertForm::kMxfp4) {
      values.push_back(std::ldexp(kCodeValues[code], scales[i / 32] - 127));
      continue;
    }
    const int e4m3 = scales[i / 16];
    const double scale = e4m3 < 8 ? std::ldexp(e4m3, -9) : std::ldexp(8 + e4m3 % 8, e4m3 / 8 - 10);
    const float global = globals[i / static_cast<std::size_t>(rows * cols)];
    const auto step = static_cast<float>(scale * global);  // exact in double, rounded once
    values.push_back(static_cast<float>(kCodeValues[code] * step));
  }
}

ExpertMatrix MoeMatrix::args() const {
  switch (form) {
    case ExpertForm::kMxfp4: return {Mxfp4Rows{blocks.data(), scales.data()}, bias.data()};
    case ExpertForm::kBf16: return {Bf16Rows{bf16.data()}, bias.data()};
    case ExpertForm::kNvfp4:
      return {Nvfp4Rows{blocks.data(), scales.data(), globals.data()}, bias.data()};
  }
  return {};
}

MoeCase::MoeCase(MoeShape given, DType x_dtype, std::uint64_t seed)
    : shape(given),
      dtype(x_dtype),
      gate_up(given.experts, std::int64_t{2} * given.intermediate, given.hidden, given.form,
              seed + 10),
      down(given.experts, given.hidden, given.intermediate, given.form, seed + 20),
      x(CounterRng(seed).normals(std::int64_t{given.tokens} * given.hidden), x_dtype),
      start(CounterRng(seed + 1).normals(std::int64_t{given.tokens} * given.hidden)) {
  const CounterRng rng(seed + 2);
  for (std::int32_t token = 0; token < shape.tokens; ++token) {
    std::int32_t first = rng.below(static_cast<std::uint64_t>(token), shape.experts);
    if (shape.routing == Routing::kAllToTheLast) {
      first = shape.experts - shape.top_k;
    }
    for (std::int32_t slot = 0; slot < shape.top_k; ++slot) {
      std::int32_t expert = (first + slot) % shape.experts;
      if (shape.routing == Routing::kNeverTheFirst) {
        expert = 1 + (first + slot) % (shape.experts - 1);
      }
      ids.push_back(expert);
      weights.push_back(1.0F / static_cast<float>(1 + (token + slot) % 5));
    }
  }
}

MoeArgs MoeCase::args(std::vector<float>& out) const {
  out = start;
  MoeArgs args;
  args.x = x.data();
  args.ids = ids.data();
  args.weights = weights.data();
  args.out = out.data();
  args.gate_up = gate_up.args();
  args.down = down.args();
  args.num_tokens = shape.tokens;
  args.hidden = shape.hidden;
  args.intermediate = shape.intermediate;
  args.num_experts = shape.experts;
  args.top_k = shape.top_k;
  args.x_dtype = dtype;
  args.inputs = shape.inputs;
  return args;
}

std::vector<ErrorBound> MoeCase::bounds(std::vector<float>* values) const {
  std::vector<ErrorBound> out;
  std::vector<Bounded> input(static_cast<std::size_t>(shape.hidden));
  std::vector<Bounded> h(static_cast<std::size_t>(shape.intermediate));
  for (std::int64_t token = 0; token < shape.tokens; ++token) {
    for (std::int64_t i = 0; i < shape.hidden; ++i) {
      input[static_cast<std::size_t>(i)] = {.value = x.at(token * shape.hidden + i)};
    }
    const bool is_int8 = shape.inputs == ExpertInputs::kInt8;
    if (is_int8) {
      quantize(input);
    }
    std::vector<double> sums(start.begin() + token * shape.hidden,
                             start.begin() + (token + 1) * shape.hidden);
    std::vector<double> magnitudes;
    std::vector<ErrorBound> errors(static_cast<std::size_t>(shape.hidden));
    for (std::int64_t i = 0; i < shape.hidden; ++i) {
      magnitudes.push_back(std::abs(start[static_cast<std::size_t>(token * shape.hidden + i)]));
    }
    for (std::int64_t slot = 0; slot < shape.top_k; ++slot) {
      const auto routed = static_cast<std::size_t>(token * shape.top_k + slot);
      const std::int64_t expert = ids[routed];
      for (std::int64_t i = 0; i < shape.intermediate; ++i) {
        const std::int64_t row = 2 * (expert * shape.intermediate + i);
        h[static_cast<std::size_t>(i)] =
            activate(project(gate_up, row, input, shape.inputs),
                     project(gate_up, row + 1, input, shape.inputs), is_int8 ? DType::kF32 : dtype);
      }
      if (is_int8) {
        quantize(h);
      }
      for (std::int64_t i = 0; i < shape.hidden; ++i) {
        const Bounded y = project(down, expert * shape.hidden + i, h, shape.inputs);
        const auto at = static_cast<std::size_t>(i);
        errors[at] = errors[at] + y.error * weights[routed];
        magnitudes[at] += std::abs(weights[routed] * y.value);
        sums[at] += weights[routed] * y.value;
      }
    }
    if (values != nullptr) {
      values->insert(values->end(), sums.begin(), sums.end());
    }
    for (std::size_t i = 0; i < errors.size(); ++i) {  // of the reference: one rounding a slot
      out.push_back(errors[i] + roundings(2.0 * shape.top_k + 2.0, magnitudes[i]));
    }
  }
  return out;
}

Status run_guarded(const Instance<MoeArgs>& row, MoeArgs args, ThreadPool& pool) {
  constexpr std::size_t kGuard = 256;
  const auto bytes = static_cast<std::size_t>(moe_workspace_bytes(args, args.num_tokens));
  const std::size_t whole = (bytes + kGuard + 63) / 64 * 64;
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(64, whole),
                                                           &std::free);
  auto* begin = static_cast<std::byte*>(memory.get());
  std::fill_n(begin, whole, std::byte{0xFF});
  args.workspace = {begin, bytes};
  const Status status = row.run(args, {&pool, nullptr});
  EXPECT_TRUE(std::all_of(begin + bytes, begin + whole,
                          [](std::byte value) { return value == std::byte{0xFF}; }))
      << row.info.name << " wrote beyond its workspace of " << bytes << " bytes";
  return status;
}

}  // namespace nibble::kernels
