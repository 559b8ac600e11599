#include "kernels/quantize/quantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/f16.h"
#include "formats/ue8m0.h"
#include "kernels/quantize/quantize_block.h"

namespace nibble::kernels {
namespace {

using formats::ScaleLayout;
using formats::ScaleRounding;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One float32 matrix, quantised.
struct Quantised {
  std::vector<std::uint8_t> values;
  std::vector<std::uint8_t> scales;
  std::vector<float> globals = {1.0F};
  QuantizeReport report;
  QuantizeArgs args;

  Quantised(const std::vector<float>& x, std::int32_t rows, const QuantizeOptions& options,
            ThreadPool* pool = nullptr) {
    args.x = x.data();
    args.rows = rows;
    args.cols = static_cast<std::int32_t>(x.size()) / rows;
    args.dtype = DType::kF32;
    args.options = options;
    const QuantizedExtent extent = quantized_extent(args).value();
    values.assign(extent.value_bytes, 0xAB);  // poison: whatever stays shows
    scales.assign(extent.scale_bytes, 0xCD);
    args.values = values.data();
    args.scales = scales.data();
    args.global_scales = globals.data();
    report = quantize(args, {pool, nullptr}).value();
  }

  template <typename T = float>
  std::vector<T> back(DType dtype = DType::kF32) const {
    std::vector<T> out(std::size_t(args.rows) * args.cols);
    DequantizeArgs reverse;
    reverse.values = values.data();
    reverse.scales = scales.data();
    reverse.global_scales = globals.data();
    reverse.out = out.data();
    reverse.rows = args.rows;
    reverse.cols = args.cols;
    reverse.dtype = dtype;
    reverse.options = args.options;
    EXPECT_TRUE(dequantize(reverse, {}).ok());
    return out;
  }
};

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> out;
  out.reserve(values.size());
  for (const float value : values) {
    out.push_back(std::bit_cast<std::uint32_t>(value));
  }
  return out;
}

QuantizeOptions options_for(QuantFormat format, ScaleRounding rounding) {
  QuantizeOptions options;
  options.format = format;
  options.rounding = rounding;
  return options;
}

// All codes up to the largest one, both signs, at a scale: every set of codes that fits under it is
// a part of this block with the same maximum, hence the same scale.
std::vector<float> grid_block(int max_code, float scale) {
  std::vector<float> block(32, -0.0F);
  for (int i = 0; i < 2 * max_code + 2; ++i) {
    const auto code = static_cast<std::uint8_t>(i / 2 | (i % 2) << 3);
    block[(i * 5) % 32] = formats::e2m1_to_f32(code) * scale;
  }
  return block;
}

TEST(Quantize, EveryRepresentableMxfp4BlockComesBackExactlyUnderEveryRule) {
  int num_checked = 0;
  for (const ScaleRounding rule :
       {ScaleRounding::kUp, ScaleRounding::kLeastError, ScaleRounding::kOcpFloor}) {
    for (int scale = 0; scale < 255; ++scale) {
      for (int max_code = 0; max_code < 8; ++max_code) {
        const float power = formats::ue8m0_to_f32(static_cast<std::uint8_t>(scale));
        const std::vector<float> block = grid_block(max_code, power);
        if (std::isinf(formats::kE2m1Values[max_code] * power)) {
          continue;  // no float32 holds it
        }
        const Quantised found(block, 1, options_for(QuantFormat::kMxfp4, rule));
        ASSERT_EQ(bits(found.back()), bits(block)) << scale << " " << max_code;
        ASSERT_EQ(found.report.num_saturated + found.report.num_zeroed_blocks, 0);
        ++num_checked;
      }
    }
  }
  EXPECT_EQ(num_checked, 3 * (255 * 8 - 4 - 2));
}

TEST(Quantize, EveryRepresentableMxfp8BlockComesBackUnderRulesThatDoNotSaturate) {
  for (int max_code = 1; max_code < 127; ++max_code) {
    std::vector<float> block(32, 0.0F);
    for (int i = 0; i < 32; ++i) {
      const int code = std::max(0, max_code - i * i / 6);
      block[i] = formats::e4m3_to_f32(static_cast<std::uint8_t>(code | (i % 2) << 7));
    }
    for (const ScaleRounding rule : {ScaleRounding::kUp, ScaleRounding::kLeastError}) {
      const Quantised found(block, 1, options_for(QuantFormat::kMxfp8, rule));
      ASSERT_EQ(bits(found.back()), bits(block)) << max_code;
    }
  }
  // 240 = 1.875 * 2^7: the OCP rule scales it to 480, past the largest e4m3.
  const Quantised ocp(std::vector<float>(32, 240.0F), 1,
                      options_for(QuantFormat::kMxfp8, ScaleRounding::kOcpFloor));
  EXPECT_EQ(ocp.back()[0], 224.0F);
  EXPECT_EQ(ocp.report.num_saturated, 32);
}

TEST(Quantize, Nvfp4HoldsMxfp4BlocksWithin16BinadesExactly) {
  std::vector<float> x;
  for (int exponent = -9; exponent <= 4; ++exponent) {
    for (int max_code = 0; max_code < 8; ++max_code) {
      const std::vector<float> block = grid_block(max_code, std::ldexp(1.0F, exponent));
      x.insert(x.end(), block.begin(), block.end());
    }
  }
  QuantizeOptions options = options_for(QuantFormat::kNvfp4, ScaleRounding::kLeastError);
  options.global_scale = GlobalScale::kPowerOfTwo;
  EXPECT_EQ(bits(Quantised(x, 4, options).back()), bits(x));
}

TEST(Quantize, NonFiniteInputPoisonsItsBlockAndIsReported) {
  for (const QuantFormat format : {QuantFormat::kMxfp4, QuantFormat::kNvfp4, QuantFormat::kMxfp8}) {
    std::vector<float> x(192, 1.5F);
    x[70] = kNan;
    x[71] = -kInf;
    x[130] = kInf;
    const Quantised found(x, 3, options_for(format, ScaleRounding::kUp));
    EXPECT_EQ(found.report.num_nan, 1);
    EXPECT_EQ(found.report.num_inf, 2);
    EXPECT_EQ(found.report.first_non_finite, 70);
    EXPECT_EQ(found.report.num_poisoned_blocks, 2);
    const std::vector<float> out = found.back();
    const int block = block_elems(format);
    for (int i = 0; i < 192; ++i) {
      const bool is_poisoned = i / block == 70 / block || i / block == 130 / block;
      ASSERT_EQ(std::isnan(out[i]), is_poisoned) << i;
    }
  }
}

TEST(Quantize, PaddingIsZeroAndNeverPartOfTheMaximum) {
  QuantizeOptions options = options_for(QuantFormat::kMxfp4, ScaleRounding::kUp);
  options.row_multiple = 4;
  options.col_multiple = 128;
  const std::vector<float> x(120, 6.0F);
  const Quantised found(x, 3, options);
  ASSERT_EQ(found.values.size(), 4 * 128 / 2);
  ASSERT_EQ(found.scales.size(), 4 * 4);
  for (int row = 0; row < 4; ++row) {
    for (int byte = 0; byte < 64; ++byte) {
      ASSERT_EQ(found.values[row * 64 + byte], row < 3 && byte < 20 ? 0x77 : 0) << row << byte;
    }
    for (int block = 0; block < 4; ++block) {
      ASSERT_EQ(found.scales[row * 4 + block], row < 3 && block < 2 ? 127 : 0);
    }
  }
}

TEST(Quantize, TooSmallBlocksBecomeZerosAndAreReported) {
  std::vector<float> x(64, 1e-45F);
  std::fill(x.begin() + 32, x.end(), 0x1p-126F);
  const Quantised mx(x, 1, options_for(QuantFormat::kMxfp4, ScaleRounding::kUp));
  EXPECT_EQ(mx.report.num_zeroed_blocks, 1);
  EXPECT_EQ(mx.back()[0], 0.0F);
  EXPECT_EQ(mx.back()[32], 0x1p-126F);
  std::vector<float> spread(32, 1.0F);
  std::fill(spread.begin(), spread.begin() + 16, -1e-9F);
  const Quantised nv(spread, 1, options_for(QuantFormat::kNvfp4, ScaleRounding::kNearestEven));
  EXPECT_EQ(nv.report.num_zeroed_blocks, 1);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(nv.back()[0]), 0x80000000U);
}

TEST(Quantize, ScaleBytesAndCodesDecodeInEveryDtype) {
  // 256 scales x 16 codes, against products in double.
  std::vector<std::uint8_t> values;
  std::vector<std::uint8_t> scales;
  for (int scale = 0; scale < 256; ++scale) {
    for (int byte = 0; byte < 16; ++byte) {
      values.push_back(static_cast<std::uint8_t>(byte | (15 - byte) << 4));
    }
    scales.push_back(static_cast<std::uint8_t>(scale));
  }
  std::vector<float> f32(8192);
  std::vector<formats::Bf16> bf16(8192);
  std::vector<formats::F16> f16(8192);
  const auto run = [&](void* out, DType dtype) {
    DequantizeArgs args;
    args.values = values.data();
    args.scales = scales.data();
    args.out = out;
    args.rows = 256;
    args.cols = 32;
    args.dtype = dtype;
    ASSERT_TRUE(dequantize(args, {}).ok());
  };
  run(f32.data(), DType::kF32);
  run(bf16.data(), DType::kBF16);
  run(f16.data(), DType::kF16);
  for (int i = 0; i < 8192; ++i) {
    const int scale = i / 32;
    const int code = i % 2 == 0 ? i % 32 / 2 : 15 - i % 32 / 2;
    if (scale == 255) {
      ASSERT_TRUE(std::isnan(f32[i]) && std::isnan(bf16_to_f32(bf16[i])) &&
                  std::isnan(f16_to_f32(f16[i])));
      continue;
    }
    const double want = std::ldexp(static_cast<double>(formats::kE2m1Values[code]), scale - 127);
    ASSERT_EQ(f32[i], static_cast<float>(want)) << i;
    ASSERT_EQ(bf16_to_f32(bf16[i]), static_cast<float>(want)) << i;  // bf16 has f32's exponents
    ASSERT_EQ(f16[i], formats::f32_to_f16(static_cast<float>(want))) << i;
    ASSERT_EQ(std::signbit(f32[i]), code >= 8);
  }
}

TEST(Quantize, BytesDependOnNeitherBackendNorThreads) {
  std::mt19937 random(7);
  std::vector<float> x(26'000);
  for (float& value : x) {
    value = std::ldexp(static_cast<float>(random() % 4001) - 2000.0F,
                       static_cast<int>(random() % 40) - 20);
  }
  for (const QuantFormat format : {QuantFormat::kMxfp4, QuantFormat::kNvfp4, QuantFormat::kMxfp8}) {
    QuantizeOptions options = options_for(format, ScaleRounding::kLeastError);
    options.scale_layout = ScaleLayout::k128x4;
    options.backend = Backend::kScalar;
    const Quantised want(x, 130, options);
    options.backend = Backend::kCpu;
    for (const int threads : {1, 2, 5}) {
      ThreadPool pool(threads);
      const Quantised found(x, 130, options, &pool);
      ASSERT_EQ(found.values, want.values);
      ASSERT_EQ(found.scales, want.scales);
      ASSERT_EQ(found.report.num_saturated, want.report.num_saturated);
    }
  }
}

TEST(Quantize, VectorsEncodeLikeScalarsAtEveryBoundary) {
  std::vector<float> points;
  for (int exponent = -12; exponent <= 10; ++exponent) {
    for (int sixteenth = 16; sixteenth < 64; ++sixteenth) {  // all midpoints of e4m3 and e2m1
      const float centre = std::ldexp(static_cast<float>(sixteenth) / 16.0F, exponent);
      for (const float value :
           {std::nextafter(centre, 0.0F), centre, std::nextafter(centre, kInf)}) {
        points.insert(points.end(), {value, -value});
      }
    }
  }
  points.resize(points.size() / 32 * 32);
  for (std::size_t at = 0; at < points.size(); at += 32) {
    alignas(64) float block[32];
    std::copy_n(points.begin() + static_cast<std::ptrdiff_t>(at), 32, block);
    std::uint8_t want[64] = {};
    std::uint8_t found[64] = {};
    const BlockOps& scalar = scalar_block_ops();
    const BlockOps& cpu = cpu_block_ops();
    ASSERT_EQ(cpu.encode_e2m1(block, 32, 1.0F, found), scalar.encode_e2m1(block, 32, 1.0F, want));
    ASSERT_EQ(cpu.encode_e4m3(block, 32, 1.0F, found + 32),
              scalar.encode_e4m3(block, 32, 1.0F, want + 32));
    ASSERT_EQ(cpu.max_magnitude_bits(block, 32), scalar.max_magnitude_bits(block, 32));
    ASSERT_TRUE(std::equal(want, want + 64, found)) << block[0];
  }
}

TEST(Quantize, LeastErrorIsNeverWorseThanTheOtherRules) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> x(16'384);
  for (float& value : x) {
    value = normal(random);
  }
  const auto error_of = [&x](QuantFormat format, ScaleRounding rule) {
    const std::vector<float> out = Quantised(x, 64, options_for(format, rule)).back();
    double sum = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      sum += std::pow(static_cast<double>(x[i]) - out[i], 2);
    }
    return sum;
  };
  const double mx = error_of(QuantFormat::kMxfp4, ScaleRounding::kLeastError);
  EXPECT_LT(mx, error_of(QuantFormat::kMxfp4, ScaleRounding::kUp));
  EXPECT_LT(mx, error_of(QuantFormat::kMxfp4, ScaleRounding::kOcpFloor));
  const double nv = error_of(QuantFormat::kNvfp4, ScaleRounding::kLeastError);
  EXPECT_LT(nv, error_of(QuantFormat::kNvfp4, ScaleRounding::kNearestEven));
  EXPECT_LT(nv, mx);
}

// The share of its norm that the worst block of 16 loses.
double worst_loss(const std::vector<float>& x, const std::vector<float>& back) {
  double worst = 0.0;
  for (std::size_t block = 0; block < x.size() / 16; ++block) {
    double lost = 0.0;
    double norm = 0.0;
    for (std::size_t i = block * 16; i < block * 16 + 16; ++i) {
      lost += std::pow(static_cast<double>(x[i]) - back[i], 2);
      norm += std::pow(static_cast<double>(x[i]), 2);
    }
    worst = std::max(worst, std::sqrt(lost / norm));
  }
  return worst;
}

// docs/numerics.md, "NVFP4 experts": the bounds, and the blocks that come up to them.
TEST(Quantize, AnNvfp4BlockLosesNoMoreOfItsNormThanProved) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> x(16'384);
  for (std::size_t block = 0; block < x.size() / 16; ++block) {
    const float level = static_cast<float>(block % 97) / 96.0F;
    for (std::size_t i = 0; i < 16; ++i) {
      x[block * 16 + i] = block % 2 == 0 ? normal(random) : i == 0 ? 1.0F : level;
    }
  }
  // Just above the midpoint of the scales 1 and 9/8, the others midway between 4 and 6; and just
  // above scale 1, which `up` makes 9/8, the others midway between 0 and 0.5.
  for (std::size_t i = 0; i < 16; ++i) {
    x[i] = i == 0 ? 6.0F * 17.0F / 16.0F * (1.0F + 0x1p-20F) : 5.0F * 9.0F / 8.0F;
    x[32 + i] = i == 0 ? 6.0F * (1.0F + 0x1p-20F) : 0.25F * 9.0F / 8.0F;
  }
  const auto loss = [&x](ScaleRounding rule) {
    return worst_loss(x, Quantised(x, 64, options_for(QuantFormat::kNvfp4, rule)).back());
  };
  EXPECT_LE(loss(ScaleRounding::kNearestEven), 0.1927);
  EXPECT_GE(loss(ScaleRounding::kNearestEven), 0.1926);
  EXPECT_LE(loss(ScaleRounding::kLeastError), 0.1927);
  EXPECT_GE(loss(ScaleRounding::kLeastError), 0.1);
  EXPECT_LE(loss(ScaleRounding::kUp), 0.2169);
  EXPECT_GE(loss(ScaleRounding::kUp), 0.2168);
}

struct BadCase {
  const char* want;
  void (*spoil)(QuantizeArgs& args);
  Code code;
};

TEST(Quantize, RefusesWhatItCannotDoWithTheNumbers) {
  const BadCase cases[] = {
      {"backend cuda: this build has 0 such quantisers",
       [](QuantizeArgs& a) { a.options.backend = Backend::kCuda; }, Code::kUnsupported},
      {"got nearest even",
       [](QuantizeArgs& a) { a.options.rounding = ScaleRounding::kNearestEven; },
       Code::kInvalidArgument},
      {"got OCP floor",
       [](QuantizeArgs& a) {
         a.options.format = QuantFormat::kNvfp4;
         a.options.rounding = ScaleRounding::kOcpFloor;
       },
       Code::kInvalidArgument},
      {"got 1 experts of [-1, 32]", [](QuantizeArgs& a) { a.rows = -1; }, Code::kInvalidArgument},
      {"got 0 rows, 1 columns", [](QuantizeArgs& a) { a.options.row_multiple = 0; },
       Code::kInvalidArgument},
      {"got i32", [](QuantizeArgs& a) { a.dtype = DType::kI32; }, Code::kUnsupported},
      {"got a null pointer", [](QuantizeArgs& a) { a.scales = nullptr; }, Code::kInvalidArgument},
      {"want a finite value above 0, got 0",
       [](QuantizeArgs& a) {
         a.options.format = QuantFormat::kNvfp4;
         a.options.global_scale = GlobalScale::kGiven;
       },
       Code::kInvalidArgument},
  };
  const std::vector<float> x(32, 1.0F);
  for (const BadCase& bad : cases) {
    std::vector<std::uint8_t> values(16, 0xAB);
    std::vector<std::uint8_t> scales(2, 0xAB);
    float global = 0.0F;
    QuantizeArgs args;
    args.x = x.data();
    args.values = values.data();
    args.scales = scales.data();
    args.global_scales = &global;
    args.rows = 1;
    args.cols = 32;
    args.dtype = DType::kF32;
    bad.spoil(args);
    const Result<QuantizeReport> result = quantize(args, {});
    ASSERT_FALSE(result.has_value()) << bad.want;
    EXPECT_EQ(result.error().code(), bad.code);
    EXPECT_NE(result.error().message().find(bad.want), std::string::npos)
        << result.error().message();
    EXPECT_EQ(values, std::vector<std::uint8_t>(16, 0xAB));
  }
}

TEST(Quantize, CountsItsTrafficAndListsItsBackends) {
  QuantizeArgs args;
  args.num_experts = 3;
  args.rows = 4;
  args.cols = 64;  // bf16
  EXPECT_EQ(quantize_bytes(args), 3 * 4 * (128 + 32 + 2));
  args.options.format = QuantFormat::kNvfp4;
  EXPECT_EQ(quantize_bytes(args), 3 * 4 * (2 * 128 + 32 + 4));
  args.rows = -1;
  EXPECT_EQ(quantize_bytes(args), 0);
  ASSERT_EQ(quantize_instances().size(), 2U);
  for (const InstanceInfo& row : quantize_instances()) {
    EXPECT_TRUE(runs_here(row)) << row.name;
  }
}

TEST(Quantize, NothingToDoIsNotAFault) {
  QuantizeArgs args;
  args.cols = 32;
  EXPECT_TRUE(quantize(args, {}).has_value());
  args.rows = 4;
  args.num_experts = 0;
  EXPECT_TRUE(quantize(args, {}).has_value());
}

}  // namespace
}  // namespace nibble::kernels
