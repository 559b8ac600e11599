#include <fmt/format.h>

#include "kernel/gpu.h"
#include "kernels/common/cache_rows.h"
#include "kernels/rope/rope_store.h"
#include "support/counter_rng.h"
#include "support/tolerance.h"

namespace nibble::kernels {
namespace {

using testing_support::CounterRng;
using testing_support::ErrorBound;
using RopeOnGpu = GpuTest;

constexpr std::int32_t kPageSize = 4;
constexpr std::int32_t kPages = 40;
constexpr float kConcentration = 1.3465736F;

struct RopeShape {
  std::int32_t rows = 0;
  std::int32_t num_heads = 4;
  std::int32_t num_kv_heads = 2;
  std::int32_t head_dim = 64;
  DType q_dtype = DType::kF32;
  DType kv_dtype = DType::kF32;
};

// Rows in shuffled slots, far positions, every seventh row without a slot.
struct RopeCase {
  explicit RopeCase(RopeShape given)
      : shape(given),
        qkv(CounterRng(1).normals(std::int64_t{shape.rows} * width())),
        inv_freq(static_cast<std::size_t>(shape.head_dim / 2)) {
    yarn_inv_freq({.factor = 32.0}, shape.head_dim, inv_freq.data());
    for (std::int32_t row = 0; row < shape.rows; ++row) {
      positions.push_back(row % 5 == 4 ? 131071 - row : 17 * row);
      slots.push_back(row % 7 == 6 ? -1 : (row * 37 + 11) % (kPages * kPageSize));
    }
  }
  std::int64_t width() const {
    return (shape.num_heads + std::int64_t{2} * shape.num_kv_heads) * shape.head_dim;
  }
  std::int64_t q_elems() const {
    return std::int64_t{shape.rows} * shape.num_heads * shape.head_dim;
  }
  std::int64_t cache_elems() const {
    return std::int64_t{kPages} * shape.num_kv_heads * kPageSize * shape.head_dim;
  }
  RopeStoreArgs args() const {
    return {.qkv = qkv.data(),
            .positions = positions.data(),
            .slots = slots.data(),
            .inv_freq = inv_freq.data(),
            .rows = shape.rows,
            .num_heads = shape.num_heads,
            .num_kv_heads = shape.num_kv_heads,
            .head_dim = shape.head_dim,
            .page_size = kPageSize,
            .concentration = kConcentration};
  }

  RopeShape shape;
  std::vector<float> qkv;
  std::vector<float> inv_freq;
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> slots;
};

// Sine and cosine to 4 units of 1, times the concentration, two products and their sum.
std::vector<ErrorBound> bounds(const RopeCase& input, std::span<const float> want, DType dtype) {
  double largest = 0.0;
  for (const float value : input.qkv) {
    largest = std::max(largest, std::abs(double{value}));
  }
  std::vector<ErrorBound> out;
  for (const float value : want) {
    const ErrorBound error = testing_support::roundings(4 + 4, 2 * kConcentration * largest);
    out.push_back(testing_support::rounded(dtype, std::isfinite(value) ? value : 0.0, error));
  }
  return out;
}

// The caches are poisoned, so a write outside the slots shows as a number that is not there.
void expect_turned(const Instance<RopeStoreArgs>& row, const RopeCase& input) {
  const auto elems = [](std::int64_t count) { return static_cast<std::size_t>(count); };
  std::vector<float> q(elems(input.q_elems()), NAN);
  std::vector<float> k(elems(input.cache_elems()), NAN);
  std::vector<float> v(elems(input.cache_elems()), NAN);
  RopeStoreArgs args = input.args();
  args.q_out = q.data();
  args.k_cache = k.data();
  args.v_cache = v.data();
  ASSERT_TRUE(rope_store_ref(args).ok());

  const RopeShape& shape = input.shape;
  const OnGpu qkv(input.qkv);
  const OnGpu positions(input.positions);
  const OnGpu slots(input.slots);
  const OnGpu inv_freq(input.inv_freq);
  const OnGpu q_gpu(input.q_elems() * dtype_bits(shape.q_dtype) / 8);
  const OnGpu k_gpu(input.cache_elems() * dtype_bits(shape.kv_dtype) / 8);
  const OnGpu v_gpu(input.cache_elems() * dtype_bits(shape.kv_dtype) / 8);
  args.qkv = qkv.data<float>();
  args.positions = positions.data<std::int32_t>();
  args.slots = slots.data<std::int64_t>();
  args.inv_freq = inv_freq.data<float>();
  args.q_out = q_gpu.data();
  args.k_cache = k_gpu.data();
  args.v_cache = v_gpu.data();
  args.q_dtype = shape.q_dtype;
  args.kv_dtype = shape.kv_dtype;
  if (!row.accepts(args)) {
    return;
  }
  ASSERT_TRUE(row.run(args, on_gpu()).ok());
  const std::string what = fmt::format("{} rows of {}, q {}, kv {}", shape.rows, shape.head_dim,
                                       dtype_name(shape.q_dtype), dtype_name(shape.kv_dtype));
  const auto expect_close = [&](const OnGpu& have, DType dtype, std::span<const float> want,
                                const char* name) {
    testing_support::expect_close(have.floats(dtype), want, bounds(input, want, dtype),
                                  name + what);
  };
  expect_close(q_gpu, shape.q_dtype, q, "q, ");
  expect_close(k_gpu, shape.kv_dtype, k, "k, ");
  const Stored rounded(v, shape.kv_dtype);  // a copy, rounded once
  const std::vector<float> have_v = v_gpu.floats(shape.kv_dtype);
  for (std::size_t i = 0; i < v.size(); ++i) {
    const float want = rounded.at(static_cast<std::int64_t>(i));
    ASSERT_TRUE(have_v[i] == want || (std::isnan(want) && std::isnan(have_v[i])))
        << "v, " << what << ", element " << i;
  }
}

TEST_F(RopeOnGpu, AgreesWithTheReferenceAndTouchesOnlyTheSlots) {
  for_each_cuda(rope_store_instances(), [](const Instance<RopeStoreArgs>& row) {
    for (const DType q_dtype : kActivationDtypes) {
      for (const DType kv_dtype : kActivationDtypes) {
        for (const std::int32_t rows : {0, 1, 2, 7, 33}) {
          expect_turned(row, RopeCase({rows, 4, 2, 64, q_dtype, kv_dtype}));
        }
        expect_turned(row, RopeCase({5, 1, 1, 2, q_dtype, kv_dtype}));
        expect_turned(row, RopeCase({5, 6, 3, 10, q_dtype, kv_dtype}));
        expect_turned(row, RopeCase({9, 64, 8, 64, q_dtype, kv_dtype}));
        expect_turned(row, RopeCase({9, 2, 1, 256, q_dtype, kv_dtype}));
      }
    }
  });
}

// One of the two caches of e4m3 in both places; slots that are not written stay as they were.
struct Codes {
  explicit Codes(const RopeCase& input)
      : codes(static_cast<std::size_t>(input.cache_elems()), 0xFF),
        scales(codes.size() / static_cast<std::size_t>(input.shape.head_dim), 0xFF),
        codes_gpu(codes),
        scales_gpu(scales) {}
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
  OnGpu codes_gpu;
  OnGpu scales_gpu;
};

// Values are copies: the same bytes. Keys are turned, by sines of another library: each comes back
// within the rounding of a code, 2^-4 of its value or 2^-10 of its unit, and the error before it.
void expect_codes(const Instance<RopeStoreArgs>& row, const RopeCase& input) {
  const RopeShape& shape = input.shape;
  std::vector<float> q(static_cast<std::size_t>(input.q_elems()), NAN);
  std::vector<float> exact_k(static_cast<std::size_t>(input.cache_elems()), NAN);
  std::vector<float> exact_v(exact_k);
  Codes k(input);
  Codes v(input);
  RopeStoreArgs args = input.args();
  args.q_out = q.data();
  args.k_cache = exact_k.data();
  args.v_cache = exact_v.data();
  ASSERT_TRUE(rope_store_ref(args).ok());
  args.kv_dtype = DType::kE4M3;
  args.k_cache = k.codes.data();
  args.v_cache = v.codes.data();
  args.k_scales = k.scales.data();
  args.v_scales = v.scales.data();
  ASSERT_TRUE(rope_store_ref(args).ok());

  const OnGpu qkv(input.qkv);
  const OnGpu positions(input.positions);
  const OnGpu slots(input.slots);
  const OnGpu inv_freq(input.inv_freq);
  const OnGpu q_gpu(input.q_elems() * dtype_bits(shape.q_dtype) / 8);
  args.qkv = qkv.data<float>();
  args.positions = positions.data<std::int32_t>();
  args.slots = slots.data<std::int64_t>();
  args.inv_freq = inv_freq.data<float>();
  args.q_out = q_gpu.data();
  args.k_cache = k.codes_gpu.data();
  args.v_cache = v.codes_gpu.data();
  args.k_scales = k.scales_gpu.data<std::uint8_t>();
  args.v_scales = v.scales_gpu.data<std::uint8_t>();
  args.q_dtype = shape.q_dtype;
  if (!row.accepts(args)) {
    return;
  }
  ASSERT_TRUE(row.run(args, on_gpu()).ok());
  const std::string what =
      fmt::format("{} rows of {}, q {}", shape.rows, shape.head_dim, dtype_name(shape.q_dtype));
  testing_support::expect_close(q_gpu.floats(shape.q_dtype), q, bounds(input, q, shape.q_dtype),
                                "q, " + what);
  EXPECT_EQ(v.codes_gpu.values<std::uint8_t>(), v.codes) << what;
  EXPECT_EQ(v.scales_gpu.values<std::uint8_t>(), v.scales) << what;
  const auto codes = k.codes_gpu.values<std::uint8_t>();
  const auto scales = k.scales_gpu.values<std::uint8_t>();
  EXPECT_EQ(scales, k.scales) << what;
  const auto before = bounds(input, exact_k, DType::kF32);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i) / shape.head_dim;
    const auto channel = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % shape.head_dim);
    const float have =
        load_cache(codes.data(), scales.data(), DType::kE4M3, at, shape.head_dim, channel);
    if (std::isnan(exact_k[i])) {
      ASSERT_EQ(codes[i], 0xFF) << "k, " << what << ", element " << i;
      continue;
    }
    const double unit = std::exp2(scales[static_cast<std::size_t>(at)] - 127);
    ASSERT_NEAR(have, exact_k[i],
                std::max(0x1p-4 * std::abs(exact_k[i]), 0x1p-10 * unit) + 2 * before[i].hard)
        << "k, " << what << ", element " << i;
  }
}

TEST_F(RopeOnGpu, StoresCodesThatAgreeWithTheReference) {
  for_each_cuda(rope_store_instances(), [](const Instance<RopeStoreArgs>& row) {
    for (const DType q_dtype : kActivationDtypes) {
      for (const std::int32_t rows : {0, 1, 2, 7, 33}) {
        expect_codes(row, RopeCase({rows, 4, 2, 64, q_dtype, DType::kE4M3}));
      }
      expect_codes(row, RopeCase({5, 1, 1, 2, q_dtype, DType::kE4M3}));
      expect_codes(row, RopeCase({5, 6, 3, 10, q_dtype, DType::kE4M3}));
      expect_codes(row, RopeCase({9, 64, 8, 64, q_dtype, DType::kE4M3}));
      expect_codes(row, RopeCase({9, 2, 1, 256, q_dtype, DType::kE4M3}));
    }
  });
}

}  // namespace
}  // namespace nibble::kernels
