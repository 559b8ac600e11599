#include <fmt/format.h>
#include <gmock/gmock.h>

#include "kernels/rope/rope_store.h"
#include "support/counter_rng.h"
#include "support/golden_arrays.h"
#include "support/tolerance.h"
#include "unit/kernels/kernel_tester.h"

namespace nibble::kernels {
namespace {

using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using testing_support::CounterRng;
using testing_support::ErrorBound;
using testing_support::expect_close;
using testing_support::GoldenArrays;

constexpr std::int32_t kPageSize = 4;
constexpr std::int32_t kPages = 40;

struct RopeShape {
  std::int32_t rows = 0;
  std::int32_t num_heads = 4;
  std::int32_t num_kv_heads = 2;
  std::int32_t head_dim = 64;
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

  std::int32_t width() const { return (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim; }
  std::int64_t q_elems() const {
    return std::int64_t{shape.rows} * shape.num_heads * shape.head_dim;
  }
  std::int64_t cache_elems() const {
    return std::int64_t{kPages} * shape.num_kv_heads * kPageSize * shape.head_dim;
  }

  RopeStoreArgs args(Stored& q, Stored& k, Stored& v, DType q_dtype, DType kv_dtype) const {
    return {.qkv = qkv.data(),
            .positions = positions.data(),
            .slots = slots.data(),
            .inv_freq = inv_freq.data(),
            .q_out = q.data(),
            .k_cache = k.data(),
            .v_cache = v.data(),
            .rows = shape.rows,
            .num_heads = shape.num_heads,
            .num_kv_heads = shape.num_kv_heads,
            .head_dim = shape.head_dim,
            .page_size = kPageSize,
            .concentration = 1.3465736F,
            .q_dtype = q_dtype,
            .kv_dtype = kv_dtype};
  }

  RopeShape shape;
  std::vector<float> qkv;
  std::vector<float> inv_freq;
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> slots;
};

struct RopeOut {
  RopeOut(const RopeCase& input, DType q_dtype, DType kv_dtype)
      : q(input.q_elems(), q_dtype),
        k(input.cache_elems(), kv_dtype),
        v(input.cache_elems(), kv_dtype),
        args(input.args(q, k, v, q_dtype, kv_dtype)) {}
  Stored q;
  Stored k;
  Stored v;
  RopeStoreArgs args;
};

// Sine and cosine to 4 units of 1, times the concentration, two products and their sum. The pair
// of a channel is bounded by the largest pair of the test.
std::vector<ErrorBound> rope_bounds(const RopeCase& input, std::span<const float> want,
                                    DType dtype) {
  double largest = 0.0;
  for (const float value : input.qkv) {
    largest = std::max(largest, std::abs(double{value}));
  }
  std::vector<ErrorBound> out;
  for (const float value : want) {
    const ErrorBound error = testing_support::roundings(4 + 4, 2 * 1.3465736 * largest);
    out.push_back(testing_support::rounded(dtype, std::isfinite(value) ? value : 0.0, error));
  }
  return out;
}

TEST(RopeStore, ReferenceAgreesWithNumpy) {
  const GoldenArrays golden("rope");
  const auto qkv = golden.get("qkv");
  const auto positions = golden.get<std::int32_t>("positions");
  const auto slots = golden.get<std::int64_t>("slots");
  const auto inv_freq = golden.get("inv_freq");
  const auto k_want = golden.get("k_cache");
  const auto v_want = golden.get("v_cache");
  const auto q_want = golden.get("q");
  std::vector<float> q(q_want.size(), NAN);
  std::vector<float> k(k_want.size(), 0.0F);
  std::vector<float> v(v_want.size(), 0.0F);
  ASSERT_TRUE(rope_store_ref({.qkv = qkv.data(),
                              .positions = positions.data(),
                              .slots = slots.data(),
                              .inv_freq = inv_freq.data(),
                              .q_out = q.data(),
                              .k_cache = k.data(),
                              .v_cache = v.data(),
                              .rows = static_cast<std::int32_t>(positions.size()),
                              .num_heads = golden.size(0),
                              .num_kv_heads = golden.size(1),
                              .head_dim = golden.size(2),
                              .page_size = golden.size(3),
                              .concentration = static_cast<float>(golden.number("concentration"))})
                  .ok());
  EXPECT_THAT(q, Pointwise(FloatEq(), q_want));
  EXPECT_THAT(k, Pointwise(FloatEq(), k_want));
  EXPECT_THAT(v, Pointwise(FloatEq(), v_want));
}

void check_against_reference(const Instance<RopeStoreArgs>& row, const RopeCase& input) {
  RopeOut want(input, DType::kF32, DType::kF32);
  ASSERT_TRUE(rope_store_ref(want.args).ok());
  for (const DType q_dtype : kActivationDtypes) {
    for (const DType kv_dtype : kActivationDtypes) {
      RopeOut have(input, q_dtype, kv_dtype);
      if (!row.accepts(have.args)) {
        continue;
      }
      ASSERT_TRUE(row.run(have.args, {&pools()[1], nullptr}).ok());
      const std::string what =
          fmt::format("{} rows of {}, q {}, kv {}", input.shape.rows, input.shape.head_dim,
                      dtype_name(q_dtype), dtype_name(kv_dtype));
      const auto q = want.q.values();
      const auto k = want.k.values();
      const auto v = want.v.values();
      expect_close(have.q.values(), q, rope_bounds(input, q, q_dtype), "q, " + what);
      expect_close(have.k.values(), k, rope_bounds(input, k, kv_dtype), "k, " + what);
      for (std::int64_t i = 0; i < input.cache_elems(); ++i) {  // a copy, rounded once
        float rounded = 0.0F;
        Stored one({&v[i], 1}, kv_dtype);
        rounded = one.at(0);
        ASSERT_TRUE(have.v.at(i) == rounded || (std::isnan(rounded) && std::isnan(have.v.at(i))))
            << "v, " << what << ", element " << i;
      }
    }
  }
}

// The caches are poisoned, so a write outside the slots shows as a number that is not there.
TEST(RopeStore, InstancesAgreeWithTheReferenceAndTouchOnlyTheSlots) {
  for_each_runnable(rope_store_instances(), [](const Instance<RopeStoreArgs>& row) {
    for (const std::int32_t rows : {0, 1, 2, 3, 7, 9, 33}) {
      check_against_reference(row, RopeCase({rows}));
    }
    check_against_reference(row, RopeCase({5, 1, 1, 2}));
    check_against_reference(row, RopeCase({5, 8, 1, 16}));
    check_against_reference(row, RopeCase({5, 6, 3, 10}));
    check_against_reference(row, RopeCase({5, 3, 3, 32}));
    check_against_reference(row, RopeCase({9, 2, 1, 128}));
  });
}

TEST(RopeStore, ARowDependsNeitherOnItsBatchNorOnTheWorkers) {
  for_each_runnable(rope_store_instances(), [](const Instance<RopeStoreArgs>& row) {
    const RopeCase input({17});
    RopeOut whole(input, DType::kF32, DType::kF32);
    ASSERT_TRUE(row.run(whole.args, {&pools()[0], nullptr}).ok());
    for (ThreadPool& pool : pools()) {
      for (const std::int32_t batch : {1, 2, 3, 17}) {
        RopeOut parts(input, DType::kF32, DType::kF32);
        for (std::int32_t first = 0; first < 17; first += batch) {
          RopeStoreArgs args = parts.args;
          args.rows = std::min(batch, 17 - first);
          args.qkv += std::int64_t{first} * input.width();
          args.positions += first;
          args.slots += first;
          args.q_out = element_at(args.q_out, DType::kF32, input.q_elems() / 17 * first);
          ASSERT_TRUE(row.run(args, {&pool, nullptr}).ok());
        }
        ASSERT_TRUE(same_bits(parts.q.values(), whole.q.values())) << batch << ' ' << pool.size();
        ASSERT_TRUE(same_bits(parts.k.values(), whole.k.values())) << batch << ' ' << pool.size();
        ASSERT_TRUE(same_bits(parts.v.values(), whole.v.values())) << batch << ' ' << pool.size();
      }
    }
  });
}

TEST(RopeStore, PositionZeroOnlyScales) {
  for_each_runnable(rope_store_instances(), [](const Instance<RopeStoreArgs>& row) {
    RopeCase input({1});
    RopeOut out(input, DType::kF32, DType::kF32);
    ASSERT_TRUE(row.run(out.args, {&pools()[0], nullptr}).ok());
    for (std::int64_t i = 0; i < input.q_elems(); ++i) {
      ASSERT_FLOAT_EQ(out.q.at(i), 1.3465736F * input.qkv[i]);
    }
  });
}

TEST(RopeStore, RefusesWhatItCannotDo) {
  const RopeCase input({2});
  RopeOut out(input, DType::kF32, DType::kF32);
  const Exec exec{&pools()[0], nullptr};
  EXPECT_TRUE(rope_store(out.args, exec).ok());
  RopeStoreArgs bad = out.args;
  bad.head_dim = 63;
  EXPECT_THAT(rope_store(bad, exec).message(), HasSubstr("head_dim 63"));
  bad = out.args;
  bad.page_size = 0;
  EXPECT_EQ(rope_store(bad, exec).code(), Code::kInvalidArgument);
  bad = out.args;
  bad.rows = -1;
  EXPECT_EQ(rope_store(bad, exec).code(), Code::kInvalidArgument);
  bad = out.args;
  bad.kv_dtype = DType::kF16;
  EXPECT_EQ(rope_store(bad, exec).code(), Code::kUnsupported);
}

TEST(Yarn, FrequenciesAgreeWithNumpy) {
  const GoldenArrays golden("rope");
  std::vector<float> have(32);
  YarnParams params{.factor = 32.0};
  yarn_inv_freq(params, 64, have.data());
  EXPECT_THAT(have, Pointwise(FloatEq(), golden.get("yarn")));
  params.truncate = true;
  yarn_inv_freq(params, 64, have.data());
  EXPECT_THAT(have, Pointwise(FloatEq(), golden.get("yarn_truncated")));
  EXPECT_FLOAT_EQ(yarn_concentration(params), static_cast<float>(golden.number("concentration")));
}

TEST(Yarn, FactorOneIsPlainRotation) {
  const GoldenArrays golden("rope");
  std::vector<float> have(8);
  const YarnParams params{.theta = 10000.0};
  yarn_inv_freq(params, 16, have.data());
  EXPECT_THAT(have, Pointwise(FloatEq(), golden.get("plain")));
  EXPECT_EQ(yarn_concentration(params), 1.0F);
}

}  // namespace
}  // namespace nibble::kernels
