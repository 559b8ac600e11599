// Every attention kernel of the build against the scalar reference, and the promises about bits.
//
// Bound per element, for n keys, head_dim d, weights w_k = exp(s_k - m) / denominator and u =
// 2^-24: a score is off by at most d * u * sum |q K| * scale =: e and its rounding, a weight by the
// factor (1 + 2 e + n u + 8 u), and the weighted sum adds n * u. Together: |error| <= (2 e + (2 n +
// 16) u) * max |V|, plus 2^-8 of the value where the output is bf16.
#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/common/element.h"
#include "tensor/buffer.h"

namespace nibble::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Shape {
  std::int32_t num_heads = 8;
  std::int32_t num_kv_heads = 1;
  std::int32_t head_dim = 64;
  std::int32_t page_size = 16;
  std::int32_t window = 0;
  DType q_dtype = DType::kF32;
  DType kv_dtype = DType::kF32;
};

std::vector<std::byte> bytes_for(std::int64_t elems, DType dtype) {
  return std::vector<std::byte>(static_cast<std::size_t>(elems * dtype_bits(dtype) / 8));
}

// One sequence of `length` positions in a cache whose other rows are NaN. Pages lie in reverse
// order; what is before the window of `from`, the first position that will be asked for, is freed.
class Case {
 public:
  Case(const Shape& shape, std::int32_t length, std::int32_t from)
      : shape_(shape), length_(length), random_(99U) {
    const std::int32_t num_pages = (length + shape.page_size - 1) / shape.page_size;
    const std::int64_t cache =
        std::int64_t{num_pages + 1} * shape.num_kv_heads * shape.page_size * shape.head_dim;
    k_ = bytes_for(cache, shape.kv_dtype);
    v_ = bytes_for(cache, shape.kv_dtype);
    for (std::int64_t i = 0; i < cache; ++i) {
      store_element(k_.data(), shape.kv_dtype, i, kNaN);
      store_element(v_.data(), shape.kv_dtype, i, kNaN);
    }
    for (std::int32_t page = 0; page < num_pages; ++page) {
      pages_.push_back(num_pages - page);
    }
    first_key_ = shape.window == 0 ? 0 : std::max(0, from - shape.window + 1);
    fill_cache();
    q_ = bytes_for(std::int64_t{length} * row_elems(), shape.q_dtype);
    for (std::int64_t i = 0; i < std::int64_t{length} * row_elems(); ++i) {
      store_element(q_.data(), shape.q_dtype, i, uniform_(random_) * 2.0F);
    }
    for (std::int32_t head = 0; head < shape.num_heads; ++head) {
      sinks_.push_back(uniform_(random_) * 3.0F);
    }
  }

  std::int64_t row_elems() const { return std::int64_t{shape_.num_heads} * shape_.head_dim; }
  std::int64_t cache_at(std::int32_t position, std::int32_t kv_head) const {
    const std::int64_t page = pages_[static_cast<std::size_t>(position / shape_.page_size)];
    return ((page * shape_.num_kv_heads + kv_head) * shape_.page_size +
            position % shape_.page_size) *
           shape_.head_dim;
  }
  // V becomes one-hot: channel position % head_dim.
  void make_values_one_hot() {
    for (std::int32_t position = first_key_; position < length_; ++position) {
      for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) {
        for (std::int32_t j = 0; j < shape_.head_dim; ++j) {
          store_element(v_.data(), shape_.kv_dtype, cache_at(position, head) + j,
                        j == position % shape_.head_dim ? 1.0F : 0.0F);
        }
      }
    }
  }

  // Rows at positions [from, to) into `out`, cut at multiples of `chunk` from `from`, all in one
  // call when `together`.
  struct Call {
    std::int32_t from = 0;
    std::int32_t to = 0;
    std::int32_t chunk = std::numeric_limits<std::int32_t>::max() / 2;
    bool together = false;
    ThreadPool* pool = nullptr;
  };
  std::vector<float> run(const Instance<AttentionArgs>& kernel, const Call& call) {
    std::vector<std::byte> out = bytes_for(std::int64_t{length_} * row_elems(), shape_.q_dtype);
    AttentionArgs args = base(out);
    std::vector<AttentionSequence> sequences;
    const std::int32_t first_page = first_key_ / shape_.page_size;
    for (std::int32_t at = call.from; at < call.to; at += call.chunk) {
      sequences.push_back({.first_row = at,
                           .num_rows = std::min(call.chunk, call.to - at),
                           .first_position = at,
                           .pages = pages_.data() + first_page,
                           .first_page = first_page});
    }
    const Exec exec{.pool = call.pool};
    Buffer<std::byte> workspace(static_cast<std::size_t>(
        attention_workspace_bytes(args, call.to - call.from, call.to, exec)));
    args.workspace = workspace.span();
    if (call.together) {
      args.sequences = sequences;
      EXPECT_TRUE(kernel.run(args, exec).ok());
    } else {
      for (const AttentionSequence& sequence : sequences) {
        args.sequences = {&sequence, 1};
        EXPECT_TRUE(kernel.run(args, exec).ok());
      }
    }
    std::vector<float> values;
    for (std::int64_t i = call.from * row_elems(); i < call.to * row_elems(); ++i) {
      values.push_back(load_element(out.data(), shape_.q_dtype, i));
    }
    return values;
  }

  // See the head of this file; |q| <= 2, |K| and |V| <= 1.
  double bound(std::int32_t position, double value) const {
    const double unit = 0x1p-24;
    const double keys = position + 1;
    const double score_error = shape_.head_dim * unit * shape_.head_dim * 2.0 * kScale;
    const double rounding = shape_.q_dtype == DType::kBF16 ? std::abs(value) * 0x1p-8 : 0.0;
    return 2.0 * score_error + (2.0 * keys + 16.0) * unit + rounding;
  }

  static constexpr float kScale = 0.125F;
  std::vector<float> sinks_;
  std::vector<std::byte> k_;
  std::vector<std::byte> v_;
  std::vector<std::byte> q_;

 private:
  AttentionArgs base(std::vector<std::byte>& out) const {
    return {.q = q_.data(),
            .k_cache = k_.data(),
            .v_cache = v_.data(),
            .sinks = sinks_.empty() ? nullptr : sinks_.data(),
            .out = out.data(),
            .num_heads = shape_.num_heads,
            .num_kv_heads = shape_.num_kv_heads,
            .head_dim = shape_.head_dim,
            .page_size = shape_.page_size,
            .window = shape_.window,
            .scale = kScale,
            .q_dtype = shape_.q_dtype,
            .kv_dtype = shape_.kv_dtype};
  }
  void fill_cache() {
    for (std::int32_t position = first_key_; position < length_; ++position) {
      for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) {
        for (std::int32_t j = 0; j < shape_.head_dim; ++j) {
          const std::int64_t at = cache_at(position, head) + j;
          store_element(k_.data(), shape_.kv_dtype, at, uniform_(random_));
          store_element(v_.data(), shape_.kv_dtype, at, uniform_(random_));
        }
      }
    }
  }

  Shape shape_;
  std::int32_t length_;
  std::int32_t first_key_ = 0;
  std::vector<std::int32_t> pages_;
  std::mt19937 random_;
  std::uniform_real_distribution<float> uniform_{-1.0F, 1.0F};
};

std::vector<const Instance<AttentionArgs>*> kernels_here() {
  std::vector<const Instance<AttentionArgs>*> out;
  for (const Instance<AttentionArgs>& kernel : attention_instances()) {
    if (runs_here(kernel.info)) {
      out.push_back(&kernel);
    }
  }
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_close(Case& data, std::int32_t position) {
  const std::vector<float> want =
      data.run(attention_instances().front(), {.from = position, .to = position + 1});
  for (const Instance<AttentionArgs>* kernel : kernels_here()) {
    const std::vector<float> got = data.run(*kernel, {.from = position, .to = position + 1});
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], data.bound(position, want[i]))
          << kernel->info.name << " position " << position << " element " << i;
    }
  }
}

constexpr std::int32_t kPositions[] = {0, 1, 63, 64, 126, 127, 128, 129, 130, 257, 511, 512, 700};

TEST(Attention, EveryKernelAgreesWithTheReference) {
  for (const auto& [heads, kv_heads] : {std::pair{8, 1}, {64, 8}, {6, 2}, {3, 3}}) {
    for (const std::int32_t window : {0, 128}) {
      for (const std::int32_t page_size : {16, 64, 256}) {
        for (const std::int32_t position : kPositions) {
          Case data({.num_heads = heads,
                     .num_kv_heads = kv_heads,
                     .page_size = page_size,
                     .window = window},
                    position + 1, position);
          expect_close(data, position);
        }
      }
    }
  }
}

TEST(Attention, Bf16IsRoundedOnceAtTheEnd) {
  for (const DType q_dtype : {DType::kF32, DType::kBF16}) {
    for (const DType kv_dtype : {DType::kF32, DType::kBF16}) {
      Case data({.page_size = 7, .window = 128, .q_dtype = q_dtype, .kv_dtype = kv_dtype}, 301,
                300);
      expect_close(data, 300);
    }
  }
}

TEST(Attention, HeadSizesFrom8To256AndNoSinks) {
  for (const std::int32_t head_dim : {8, 24, 128, 256}) {
    Case data({.num_heads = 80, .num_kv_heads = 1, .head_dim = head_dim}, 101, 100);
    data.sinks_.clear();
    expect_close(data, 100);
  }
}

// The weights can be read out: key k is channel k % head_dim, and 128 keys need 2 of each.
TEST(Attention, WindowOf128SeesTheTokenAnd127Before) {
  for (const std::int32_t position : {126, 127, 128, 129, 256}) {
    Case data({.num_heads = 1, .head_dim = 256, .page_size = 64, .window = 128}, position + 1, 0);
    data.make_values_one_hot();
    data.sinks_.clear();
    for (const Instance<AttentionArgs>* kernel : kernels_here()) {
      const std::vector<float> weights = data.run(*kernel, {.from = position, .to = position + 1});
      std::int32_t seen = 0;
      for (std::int32_t key = std::max(0, position - 255); key <= position; ++key) {
        const bool is_seen = weights[static_cast<std::size_t>(key % 256)] > 0.0F;
        EXPECT_EQ(is_seen, key > position - 128) << kernel->info.name << " key " << key;
        seen += is_seen ? 1 : 0;
      }
      EXPECT_EQ(seen, std::min(position + 1, 128)) << kernel->info.name;
    }
  }
}

// The reference takes rows one by one: its bits cannot depend on the batch.
std::vector<const Instance<AttentionArgs>*> parallel_kernels() {
  std::vector<const Instance<AttentionArgs>*> out = kernels_here();
  std::erase_if(out, [](const auto* kernel) { return kernel->info.backend == Backend::kScalar; });
  return out;
}

TEST(Attention, ARowHasTheSameBitsInEveryChunkBatchAndPool) {
  ThreadPool two(2);
  ThreadPool five(5);
  for (const std::int32_t window : {0, 128}) {
    for (const std::int32_t page_size : {16, 256}) {
      Case data({.num_heads = 6, .num_kv_heads = 2, .page_size = page_size, .window = window}, 720,
                0);
      for (const Instance<AttentionArgs>* kernel : parallel_kernels()) {
        const std::vector<float> whole = data.run(*kernel, {.from = 0, .to = 720});
        for (const std::int32_t chunk : {1, 100, 128, 129, 300}) {
          EXPECT_TRUE(same_bits(
              whole, data.run(*kernel, {.from = 0, .to = 720, .chunk = chunk, .pool = &two})))
              << kernel->info.name << " chunk " << chunk << " window " << window;
          EXPECT_TRUE(same_bits(
              whole,
              data.run(*kernel,
                       {.from = 0, .to = 720, .chunk = chunk, .together = true, .pool = &five})))
              << kernel->info.name << " chunk " << chunk << " window " << window << " together";
        }
      }
    }
  }
}

// Long enough for several waves of split chunks.
TEST(Attention, SplitKeysKeepTheBits) {
  ThreadPool two(2);
  ThreadPool seven(7);
  for (const std::int32_t window : {0, 1500}) {
    Case data({.head_dim = 16, .window = window}, 40001, 39900);
    for (const Instance<AttentionArgs>* kernel : parallel_kernels()) {
      const std::vector<float> alone = data.run(*kernel, {.from = 40000, .to = 40001});
      for (ThreadPool* pool : {&two, &seven}) {
        EXPECT_TRUE(same_bits(alone, data.run(*kernel, {.from = 40000, .to = 40001, .pool = pool})))
            << kernel->info.name << " window " << window;
        const std::vector<float> rows =
            data.run(*kernel, {.from = 39990, .to = 40001, .pool = pool});
        EXPECT_TRUE(
            same_bits(alone, {rows.end() - static_cast<std::ptrdiff_t>(alone.size()), rows.end()}))
            << kernel->info.name << " window " << window << " in 11 rows";
      }
    }
  }
}

TEST(Attention, ANaNInAVisibleKeyIsNotHidden) {
  Case data({.num_heads = 1}, 100, 99);
  store_element(data.k_.data(), DType::kF32, data.cache_at(40, 0), kNaN);
  for (const Instance<AttentionArgs>* kernel : kernels_here()) {
    EXPECT_TRUE(std::isnan(data.run(*kernel, {.from = 99, .to = 100}).front()))
        << kernel->info.name;
  }
}

TEST(Attention, ASinkFarAboveTheScoresTakesAllWeight) {
  Case data({.num_heads = 1}, 10, 9);
  data.sinks_ = {200.0F};
  for (const Instance<AttentionArgs>* kernel : kernels_here()) {
    EXPECT_EQ(data.run(*kernel, {.from = 9, .to = 10}).front(), 0.0F) << kernel->info.name;
  }
}

TEST(Attention, NoRowsIsNoWork) {
  Case data({}, 1, 0);
  for (const Instance<AttentionArgs>* kernel : kernels_here()) {
    EXPECT_TRUE(data.run(*kernel, {.from = 0, .to = 0}).empty()) << kernel->info.name;
  }
}

}  // namespace
}  // namespace nibble::kernels
