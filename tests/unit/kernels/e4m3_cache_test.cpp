// A cache of e4m3 on processors: what rope_store writes, and that attention reads just that.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/common/cache_rows.h"
#include "kernels/rope/rope_store.h"
#include "support/counter_rng.h"
#include "tensor/buffer.h"
#include "unit/kernels/kernel_tester.h"

namespace nibble::kernels {
namespace {

using ::testing::HasSubstr;
using testing_support::CounterRng;

constexpr std::int32_t kPageSize = 16;
constexpr std::int32_t kUnwritten = 0xA5;

struct Shape {
  std::int32_t rows = 40;
  std::int32_t num_heads = 8;
  std::int32_t num_kv_heads = 2;
  std::int32_t head_dim = 64;
};

// Positions 0, 1, ... in pages that lie in reverse. Values of one head are a thousand times those
// of the other, so each has to have its own scale.
struct Filled {
  explicit Filled(Shape given, DType dtype)
      : shape(given),
        num_pages((given.rows + kPageSize - 1) / kPageSize + 1),
        qkv(CounterRng(3).normals(std::int64_t{given.rows} * width())),
        inv_freq(static_cast<std::size_t>(given.head_dim / 2)),
        q(static_cast<std::size_t>(std::int64_t{given.rows} * given.num_heads * given.head_dim)),
        k(cache_bytes(dtype), static_cast<std::byte>(kUnwritten)),
        v(k),
        k_scales(static_cast<std::size_t>(num_rows()), kUnwritten),
        v_scales(k_scales) {
    yarn_inv_freq({.factor = 32.0}, shape.head_dim, inv_freq.data());
    for (std::int32_t row = 0; row < shape.rows; ++row) {
      positions.push_back(row);
      slots.push_back((num_pages - 1 - row / kPageSize) * kPageSize + row % kPageSize);
      float* kv =
          qkv.data() + std::int64_t{row} * width() + std::int64_t{shape.num_heads} * shape.head_dim;
      for (std::int32_t j = 0; j < shape.head_dim; ++j) {
        kv[j] *= 1000.0F;
      }
    }
  }
  std::int32_t width() const { return (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim; }
  std::int64_t num_rows() const { return std::int64_t{num_pages} * shape.num_kv_heads * kPageSize; }
  std::size_t cache_bytes(DType dtype) const {
    return static_cast<std::size_t>(num_rows() * shape.head_dim * dtype_bits(dtype) / 8);
  }
  RopeStoreArgs args(DType dtype) {
    return {.qkv = qkv.data(),
            .positions = positions.data(),
            .slots = slots.data(),
            .inv_freq = inv_freq.data(),
            .q_out = q.data(),
            .k_cache = k.data(),
            .v_cache = v.data(),
            .k_scales = k_scales.data(),
            .v_scales = v_scales.data(),
            .rows = shape.rows,
            .num_heads = shape.num_heads,
            .num_kv_heads = shape.num_kv_heads,
            .head_dim = shape.head_dim,
            .page_size = kPageSize,
            .concentration = 1.3465736F,
            .q_dtype = DType::kF32,
            .kv_dtype = dtype};
  }

  Shape shape;
  std::int32_t num_pages;
  std::vector<float> qkv;
  std::vector<float> inv_freq;
  std::vector<float> q;
  std::vector<std::byte> k;
  std::vector<std::byte> v;
  std::vector<std::uint8_t> k_scales;
  std::vector<std::uint8_t> v_scales;
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> slots;
};

// Each row of codes beside the float32 numbers it stands for, which an instance of its own kind
// gave.
void expect_rounded(const std::vector<std::byte>& codes, const std::vector<std::uint8_t>& scales,
                    const std::vector<std::byte>& exact, std::int64_t row, std::int32_t head_dim) {
  double amax = 0.0;
  double largest = 0.0;
  for (std::int32_t j = 0; j < head_dim; ++j) {
    const double want = load_element(exact.data(), DType::kF32, row * head_dim + j);
    const double have = load_cache(codes.data(), scales.data(), DType::kE4M3, row, head_dim, j);
    amax = std::max(amax, std::abs(want));
    largest = std::max(largest, std::abs(have));
    ASSERT_LE(std::abs(have - want), 0x1p-4 * std::abs(want) + 0x1p-8) << row << ", " << j;
  }
  // No finer scale holds the largest, and it is there.
  const double unit = std::exp2(scales[static_cast<std::size_t>(row)] - 127);
  ASSERT_TRUE(amax <= 448.0 * unit && amax > 224.0 * unit) << amax << " under " << unit;
  ASSERT_GE(largest, amax * (1.0 - 0x1p-4));
}

TEST(E4m3Cache, EveryRowIsRoundedUnderItsOwnScaleAndNothingElseIsTouched) {
  for_each_runnable(rope_store_instances(), [](const Instance<RopeStoreArgs>& row) {
    for (const Shape& shape :
         {Shape{}, Shape{.rows = 1, .num_kv_heads = 1, .head_dim = 16},
          Shape{.rows = 17, .num_heads = 6, .num_kv_heads = 3, .head_dim = 128}}) {
      Filled exact(shape, DType::kF32);
      Filled codes(shape, DType::kE4M3);
      ASSERT_TRUE(row.run(exact.args(DType::kF32), {&pools()[1], nullptr}).ok());
      ASSERT_TRUE(row.run(codes.args(DType::kE4M3), {&pools()[1], nullptr}).ok());
      EXPECT_TRUE(same_bits(codes.q, exact.q));
      std::vector<bool> is_written(static_cast<std::size_t>(exact.num_rows()));
      for (const std::int64_t slot : exact.slots) {
        for (std::int32_t head = 0; head < shape.num_kv_heads; ++head) {
          const std::int64_t at =
              cache_row(slot / kPageSize, shape.num_kv_heads, head, kPageSize, slot % kPageSize);
          is_written[static_cast<std::size_t>(at)] = true;
          expect_rounded(codes.k, codes.k_scales, exact.k, at, shape.head_dim);
          expect_rounded(codes.v, codes.v_scales, exact.v, at, shape.head_dim);
        }
      }
      for (std::size_t at = 0; at < is_written.size(); ++at) {
        const std::size_t first = at * static_cast<std::size_t>(shape.head_dim);
        ASSERT_TRUE(is_written[at] ||
                    (codes.k_scales[at] == kUnwritten && codes.v_scales[at] == kUnwritten &&
                     codes.k[first] == static_cast<std::byte>(kUnwritten) &&
                     codes.v[first] == static_cast<std::byte>(kUnwritten)));
      }
    }
  });
}

TEST(E4m3Cache, ABrokenRowComesBackAsNaN) {
  for_each_runnable(rope_store_instances(), [](const Instance<RopeStoreArgs>& row) {
    for (const float broken : {std::nanf(""), HUGE_VALF}) {
      Filled codes({.rows = 1}, DType::kE4M3);
      codes.qkv[static_cast<std::size_t>(codes.width()) - 1] = broken;  // of the last head's value
      ASSERT_TRUE(row.run(codes.args(DType::kE4M3), {&pools()[0], nullptr}).ok());
      const std::int64_t page = codes.slots[0] / kPageSize;
      for (std::int32_t head = 0; head < 2; ++head) {
        const std::int64_t at = cache_row(page, 2, head, kPageSize, 0);
        const float value =
            load_cache(codes.v.data(), codes.v_scales.data(), DType::kE4M3, at, 64, 5);
        EXPECT_EQ(std::isnan(value), head == 1);
      }
    }
  });
}

// Rows [first, rows) attend over a cache.
std::vector<float> attend(const Instance<AttentionArgs>& kernel, Filled& from, std::int32_t window,
                          DType dtype) {
  std::vector<float> out(from.q.size(), NAN);
  std::vector<std::int32_t> pages;
  for (std::int32_t page = 0; page * kPageSize < from.shape.rows; ++page) {
    pages.push_back(from.num_pages - 1 - page);
  }
  const AttentionSequence sequence{.num_rows = from.shape.rows, .pages = pages.data()};
  const Exec exec{.pool = &pools()[1]};
  AttentionArgs args{.q = from.q.data(),
                     .k_cache = from.k.data(),
                     .v_cache = from.v.data(),
                     .k_scales = from.k_scales.data(),
                     .v_scales = from.v_scales.data(),
                     .out = out.data(),
                     .sequences = {&sequence, 1},
                     .num_heads = from.shape.num_heads,
                     .num_kv_heads = from.shape.num_kv_heads,
                     .head_dim = from.shape.head_dim,
                     .page_size = kPageSize,
                     .window = window,
                     .scale = 0.125F,
                     .q_dtype = DType::kF32,
                     .kv_dtype = dtype};
  Buffer<std::byte> workspace(static_cast<std::size_t>(
      attention_workspace_bytes(args, from.shape.rows, from.shape.rows, exec)));
  args.workspace = workspace.span();
  EXPECT_TRUE(kernel.run(args, exec).ok());
  return out;
}

TEST(E4m3Cache, AttentionHasTheBitsOfACacheThatHoldsTheSameValues) {
  for (const std::int32_t window : {0, 20}) {
    Filled codes({.rows = 75}, DType::kE4M3);
    ASSERT_TRUE(rope_store_ref(codes.args(DType::kE4M3)).ok());
    Filled wide({.rows = 75}, DType::kF32);
    wide.q = codes.q;
    for (std::int64_t at = 0; at < wide.num_rows(); ++at) {
      for (std::int32_t j = 0; j < 64; ++j) {
        const auto value = [&](const std::vector<std::byte>& cache,
                               const std::vector<std::uint8_t>& scales) {
          return load_cache(cache.data(), scales.data(), DType::kE4M3, at, 64, j);
        };
        store_element(wide.k.data(), DType::kF32, at * 64 + j, value(codes.k, codes.k_scales));
        store_element(wide.v.data(), DType::kF32, at * 64 + j, value(codes.v, codes.v_scales));
      }
    }
    for_each_runnable(attention_instances(), [&](const Instance<AttentionArgs>& kernel) {
      EXPECT_TRUE(same_bits(attend(kernel, codes, window, DType::kE4M3),
                            attend(kernel, wide, window, DType::kF32)));
    });
  }
}

TEST(E4m3Cache, ScalesMustBeThere) {
  Filled codes({.rows = 1}, DType::kE4M3);
  RopeStoreArgs args = codes.args(DType::kE4M3);
  EXPECT_TRUE(rope_store(args, {&pools()[0], nullptr}).ok());
  args.v_scales = nullptr;
  EXPECT_THAT(rope_store(args, {&pools()[0], nullptr}).message(), HasSubstr("want scales"));
  AttentionArgs attention_args{
      .num_heads = 1, .num_kv_heads = 1, .head_dim = 64, .page_size = 1, .kv_dtype = DType::kE4M3};
  EXPECT_THAT(attention(attention_args, {&pools()[0], nullptr}).message(),
              HasSubstr("want scales"));
}

}  // namespace
}  // namespace nibble::kernels
