#include "kernels/attention/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "kernel/gpu.h"
#include "kernels/attention/attention_plan.h"
#include "kernels/common/cache_rows.h"
#include "support/counter_rng.h"
#include "support/tolerance.h"

namespace nibble::kernels {
namespace {

using testing_support::CounterRng;
using testing_support::ErrorBound;
using AttentionOnGpu = GpuTest;

struct Shape {
  std::int32_t num_heads = 8;
  std::int32_t num_kv_heads = 1;
  std::int32_t head_dim = 64;
  std::int32_t page_size = 64;
  std::int32_t window = 0;
  DType dtype = DType::kBF16;
  bool has_sinks = true;
  bool has_codes = false;  // the cache is of e4m3; `dtype` holds its values exactly
};
struct Rows {
  std::int32_t first_position = 0;
  std::int32_t count = 1;
};

// Sequences over one cache whose pages are shuffled; what no row sees is NaN in every bit.
class Case {
 public:
  Case(Shape shape, std::vector<Rows> sequences) : shape_(shape), rows_(std::move(sequences)) {
    for (const Rows& rows : rows_) {
      num_rows_ += rows.count;
      num_pages_ += (rows.first_position + rows.count + shape.page_size - 1) / shape.page_size;
    }
    ++num_pages_;  // page 0 belongs to nobody
    q_ = std::make_unique<Stored>(CounterRng(1).normals(q_elems(), 2.0F), shape.dtype);
    const std::int64_t cache = cache_elems();
    k_ = std::make_unique<Stored>(cache, shape.dtype);
    v_ = std::make_unique<Stored>(cache, shape.dtype);
    sinks_ = CounterRng(4).normals(shape.num_heads);
    std::int32_t next_page = num_pages_ - 1;
    std::int32_t first_row = 0;
    for (const Rows& rows : rows_) {
      fill_sequence(rows, first_row, next_page);
      first_row += rows.count;
    }
    if (shape.has_codes) {
      to_codes(*k_, k_codes_, k_scales_);
      to_codes(*v_, v_codes_, v_scales_);
    }
    to_gpu();
  }

  std::vector<float> want() const {
    Stored out(q_elems(), shape_.dtype == DType::kBF16 ? DType::kF32 : shape_.dtype);
    AttentionArgs args = base();
    // Rounding of the result is the kernel's: the reference keeps float32 inputs of the same
    // values.
    const Stored q(q_->values(), DType::kF32);
    const Stored k(k_->values(), DType::kF32);
    const Stored v(v_->values(), DType::kF32);
    args.q = q.data();
    args.k_cache = k.data();
    args.v_cache = v.data();
    args.sinks = shape_.has_sinks ? sinks_.data() : nullptr;
    args.out = out.data();
    args.q_dtype = args.kv_dtype = DType::kF32;
    args.sequences = host_sequences_;
    EXPECT_TRUE(attention_ref(args).ok());
    return out.values();
  }

  AttentionArgs args() {
    AttentionArgs args = base();
    args.q = q_gpu_->data();
    args.k_cache = k_gpu_->data();
    args.v_cache = v_gpu_->data();
    args.k_scales = k_scales_gpu_->data<std::uint8_t>();
    args.v_scales = v_scales_gpu_->data<std::uint8_t>();
    args.sinks = shape_.has_sinks ? sinks_gpu_->data<float>() : nullptr;
    args.out = out_->data();
    args.sequences = sequences_;
    args.device_sequences = sequences_gpu_->data<AttentionSequence>();
    if (workspace_ == nullptr) {
      workspace_ =
          std::make_unique<OnGpu>(attention_workspace_bytes(args, num_rows_, longest(), on_gpu()));
    }
    args.workspace = {workspace_->data<std::byte>(), static_cast<std::size_t>(workspace_->bytes())};
    return args;
  }

  OnGpu& out() { return *out_; }
  const Shape& shape() const { return shape_; }
  std::int32_t longest() const {
    std::int32_t most = 0;
    for (const Rows& rows : rows_) {
      most = std::max(most, rows.first_position + rows.count);
    }
    return most;
  }
  // Values of bf16 weights: half a unit each way on weight and result; scores of deviation 2 * 8 /
  // 8 err by a few float32 units of their size, which exp makes relative.
  std::vector<ErrorBound> bounds(std::span<const float> want) const {
    double largest = 0.0;
    for (std::int64_t i = 0; i < cache_elems(); ++i) {
      largest = std::isnan(v_->at(i)) ? largest : std::max(largest, std::abs(double{v_->at(i)}));
    }
    const double keys = shape_.window == 0 ? longest() : shape_.window;
    const double score_units = 64.0 + 2.0 * shape_.head_dim;
    const double weight_error =
        (shape_.dtype == DType::kBF16 ? 2.0 * testing_support::kUnitBf16 : 0.0) +
        (score_units + keys) * testing_support::kUnitF32;
    std::vector<ErrorBound> out;
    for (const float value : want) {
      // The weights sum to at most one, so values bound what their relative error does; of many
      // keys the errors do not conspire.
      const ErrorBound error{weight_error * largest, weight_error * largest / 4};
      out.push_back(testing_support::rounded(shape_.dtype, value, error));
    }
    return out;
  }

 private:
  std::int64_t q_elems() const {
    return std::int64_t{num_rows_} * shape_.num_heads * shape_.head_dim;
  }
  std::int64_t cache_elems() const {
    return std::int64_t{num_pages_} * shape_.num_kv_heads * shape_.page_size * shape_.head_dim;
  }

  AttentionArgs base() const {
    return {.num_heads = shape_.num_heads,
            .num_kv_heads = shape_.num_kv_heads,
            .head_dim = shape_.head_dim,
            .page_size = shape_.page_size,
            .window = shape_.window,
            .scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim)),
            .q_dtype = shape_.dtype,
            .kv_dtype = shape_.has_codes ? DType::kE4M3 : shape_.dtype};
  }

  void fill_sequence(const Rows& rows, std::int32_t first_row, std::int32_t& next_page) {
    const std::int32_t end = rows.first_position + rows.count;
    const std::int32_t begin =
        shape_.window == 0 ? 0 : std::max(0, rows.first_position - shape_.window + 1);
    const std::int32_t first_page = begin / shape_.page_size;
    host_sequences_.push_back({.first_row = first_row,
                               .num_rows = rows.count,
                               .first_position = rows.first_position,
                               .first_page = first_page});
    offsets_.push_back(static_cast<std::int64_t>(pages_.size()));
    for (std::int32_t page = first_page; page * shape_.page_size < end; ++page) {
      pages_.push_back(next_page--);
    }
    const CounterRng keys(10 + static_cast<std::uint64_t>(first_row));
    const CounterRng values(1000 + static_cast<std::uint64_t>(first_row));
    for (std::int32_t key = begin; key < end; ++key) {
      const std::int64_t page =
          pages_[static_cast<std::size_t>(offsets_.back() + key / shape_.page_size - first_page)];
      for (std::int32_t head = 0; head < shape_.num_kv_heads; ++head) {
        const std::int64_t at =
            ((page * shape_.num_kv_heads + head) * shape_.page_size + key % shape_.page_size) *
            shape_.head_dim;
        for (std::int32_t j = 0; j < shape_.head_dim; ++j) {
          const auto draw = static_cast<std::uint64_t>(
              (std::int64_t{key} * shape_.num_kv_heads + head) * shape_.head_dim + j);
          // Rows of several sizes, so that each needs its own scale.
          const float size = shape_.has_codes ? std::ldexp(1.0F, -(key % 4)) : 1.0F;
          store_element(k_->data(), shape_.dtype, at + j, size * keys.normal(draw));
          store_element(v_->data(), shape_.dtype, at + j, size * values.normal(draw));
        }
      }
    }
  }

  // Every row as codes with a scale, and `values` as those come back.
  void to_codes(Stored& values, std::vector<std::uint8_t>& codes,
                std::vector<std::uint8_t>& scales) const {
    const auto head_dim = static_cast<std::size_t>(shape_.head_dim);
    codes.resize(static_cast<std::size_t>(cache_elems()));
    scales.resize(codes.size() / head_dim);
    const std::vector<float> all = values.values();
    for (std::size_t row = 0; row < scales.size(); ++row) {
      const auto at = static_cast<std::int64_t>(row);
      store_cache(codes.data(), scales.data(), DType::kE4M3, at,
                  std::span(all).subspan(row * head_dim, head_dim));
      for (std::int32_t j = 0; j < shape_.head_dim; ++j) {
        store_element(
            values.data(), shape_.dtype, at * shape_.head_dim + j,
            load_cache(codes.data(), scales.data(), DType::kE4M3, at, shape_.head_dim, j));
      }
    }
  }

  void to_gpu() {
    const auto bytes = [&](std::int64_t elems) { return elems * dtype_bits(shape_.dtype) / 8; };
    q_gpu_ = std::make_unique<OnGpu>(q_->data(), bytes(q_elems()));
    k_gpu_ = shape_.has_codes ? std::make_unique<OnGpu>(k_codes_)
                              : std::make_unique<OnGpu>(k_->data(), bytes(cache_elems()));
    v_gpu_ = shape_.has_codes ? std::make_unique<OnGpu>(v_codes_)
                              : std::make_unique<OnGpu>(v_->data(), bytes(cache_elems()));
    k_scales_gpu_ = std::make_unique<OnGpu>(k_scales_);
    v_scales_gpu_ = std::make_unique<OnGpu>(v_scales_);
    sinks_gpu_ = std::make_unique<OnGpu>(sinks_);
    pages_gpu_ = std::make_unique<OnGpu>(pages_);
    out_ = std::make_unique<OnGpu>(bytes(q_elems()));
    sequences_ = host_sequences_;
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      sequences_[i].pages = pages_gpu_->data<std::int32_t>() + offsets_[i];
      host_sequences_[i].pages = pages_.data() + offsets_[i];
    }
    sequences_gpu_ = std::make_unique<OnGpu>(sequences_);
  }

  Shape shape_;
  std::vector<Rows> rows_;
  std::int32_t num_rows_ = 0;
  std::int32_t num_pages_ = 0;
  std::unique_ptr<Stored> q_;
  std::unique_ptr<Stored> k_;
  std::unique_ptr<Stored> v_;
  std::vector<std::uint8_t> k_codes_, v_codes_, k_scales_, v_scales_;
  std::vector<float> sinks_;
  std::vector<std::int32_t> pages_;
  std::vector<std::int64_t> offsets_;  // of a sequence's pages
  std::vector<AttentionSequence> host_sequences_;
  std::vector<AttentionSequence> sequences_;
  std::unique_ptr<OnGpu> q_gpu_, k_gpu_, v_gpu_, k_scales_gpu_, v_scales_gpu_, sinks_gpu_,
      pages_gpu_, out_, sequences_gpu_, workspace_;
};

void expect_attended(const Instance<AttentionArgs>& row, const Shape& shape,
                     const std::vector<Rows>& sequences) {
  Case input(shape, sequences);
  const AttentionArgs args = input.args();
  if (!row.accepts(args)) {
    return;
  }
  ASSERT_TRUE(row.run(args, on_gpu()).ok());
  const std::vector<float> want = input.want();
  testing_support::expect_close(
      input.out().floats(shape.dtype), want, input.bounds(want),
      fmt::format("{} over {} heads of {}, window {}, {} sequences from {}, {} rows",
                  shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.window,
                  sequences.size(), sequences[0].first_position, sequences[0].count));
}

TEST_F(AttentionOnGpu, AgreesWithTheReferenceOneRowAtEveryEdgeOfTheChunks) {
  for_each_cuda(attention_instances(), [](const Instance<AttentionArgs>& row) {
    for (const std::int32_t window : {0, 1, 128, 300}) {
      for (const std::int32_t at : {0, 1, 63, 64, 127, 128, 255, 256, 257, 511, 512, 700, 1030}) {
        expect_attended(row, {.window = window}, {{at, 1}});
      }
    }
  });
}

// A cache of codes: the same edges, single rows, prompts and both together.
TEST_F(AttentionOnGpu, AgreesWithTheReferenceOverCodes) {
  const std::vector<Rows> mixed = {{300, 1}, {0, 20}, {64, 2}, {0, 1}, {511, 1}, {100, 33}, {5, 0}};
  const std::vector<Rows> prompts = {{0, 24}, {103, 26}, {63, 2}, {128, 49}, {1, 191}, {640, 70}};
  for_each_cuda(attention_instances(), [&](const Instance<AttentionArgs>& row) {
    for (const std::int32_t window : {0, 1, 128, 300}) {
      for (const std::int32_t at : {0, 63, 64, 255, 256, 512, 1030}) {
        expect_attended(row, {.window = window, .has_codes = true}, {{at, 1}});
      }
      expect_attended(
          row, {.num_heads = 16, .num_kv_heads = 2, .window = window, .has_codes = true}, prompts);
    }
    for (const std::int32_t window : {0, 128}) {
      expect_attended(
          row, {.num_heads = 64, .num_kv_heads = 8, .window = window, .has_codes = true}, mixed);
      expect_attended(row, {.num_heads = 16, .window = window, .has_codes = true}, mixed);
      expect_attended(row, {.head_dim = 8, .page_size = 3, .window = window, .has_codes = true},
                      mixed);
      expect_attended(row, {.window = window, .dtype = DType::kF32, .has_codes = true}, mixed);
      expect_attended(row, {.num_heads = 4, .num_kv_heads = 2, .window = window, .has_codes = true},
                      {{0, 1100}});
    }
  });
}

TEST_F(AttentionOnGpu, AgreesWithTheReferenceOnPrompts) {
  for_each_cuda(attention_instances(), [](const Instance<AttentionArgs>& row) {
    for (const std::int32_t window : {0, 128}) {
      for (const std::int32_t count : {2, 3, 7, 8, 9, 63, 65, 130}) {
        expect_attended(row, {.window = window}, {{0, count}});
        expect_attended(row, {.window = window}, {{191, count}});
      }
    }
  });
}

TEST_F(AttentionOnGpu, AgreesWithTheReferenceOnMixedBatches) {
  const std::vector<Rows> mixed = {{300, 1}, {0, 20}, {64, 2}, {0, 1}, {511, 1}, {100, 33}, {5, 0}};
  for_each_cuda(attention_instances(), [&](const Instance<AttentionArgs>& row) {
    for (const std::int32_t window : {0, 128}) {
      for (const bool has_sinks : {false, true}) {
        expect_attended(row, {.window = window, .has_sinks = has_sinks}, mixed);
      }
      expect_attended(row, {.num_heads = 64, .num_kv_heads = 8, .window = window}, mixed);
      expect_attended(row, {.num_heads = 4, .num_kv_heads = 4, .window = window}, mixed);
      expect_attended(row, {.num_heads = 4, .num_kv_heads = 2, .window = window}, mixed);
      expect_attended(row, {.num_heads = 16, .num_kv_heads = 1, .window = window}, mixed);
      expect_attended(row, {.num_heads = 6, .num_kv_heads = 2, .window = window}, mixed);
      expect_attended(row, {.head_dim = 8, .page_size = 3, .window = window}, mixed);
      expect_attended(row, {.head_dim = 256, .page_size = 5, .window = window}, mixed);
      expect_attended(row, {.page_size = 192, .window = window}, mixed);
      expect_attended(row, {.window = window, .dtype = DType::kF32}, mixed);
    }
  });
}

// Tiles hold 192 queries, so 24 tokens of groups of eight heads; steps 64 or 128 keys.
TEST_F(AttentionOnGpu, PromptsAgreeWithTheReferenceAroundTilesAndSteps) {
  const std::vector<Rows> prompts = {{0, 2},     {0, 23},  {0, 24},  {0, 25},   {104, 24},
                                     {103, 26},  {63, 2},  {127, 3}, {128, 49}, {1, 191},
                                     {200, 193}, {700, 1}, {640, 70}};
  for_each_cuda(attention_instances(), [&](const Instance<AttentionArgs>& row) {
    for (const std::int32_t window : {0, 1, 64, 128, 300}) {
      expect_attended(row, {.num_heads = 16, .num_kv_heads = 2, .window = window}, prompts);
    }
    for (const std::int32_t window : {0, 128}) {
      expect_attended(row, {.num_heads = 4, .num_kv_heads = 4, .window = window}, prompts);
      expect_attended(row, {.num_heads = 16, .num_kv_heads = 1, .window = window}, prompts);
      expect_attended(row, {.num_heads = 8, .page_size = 128, .window = window}, prompts);
      expect_attended(row, {.num_heads = 4, .num_kv_heads = 2, .window = window}, {{0, 1100}});
    }
  });
}

TEST_F(AttentionOnGpu, TakesMorePromptsThanALaunchDoes) {
  std::vector<Rows> prompts;
  for (std::int32_t i = 0; i < 1100; ++i) {
    prompts.push_back({i % 5, 1 + i % 3});
  }
  for_each_cuda(attention_instances(), [&](const Instance<AttentionArgs>& row) {
    expect_attended(row, {.num_heads = 2}, prompts);
  });
}

TEST_F(AttentionOnGpu, APromptDoesNotDependOnHowItIsCut) {
  for_each_cuda(attention_instances(), [](const Instance<AttentionArgs>& row) {
    for (const std::int32_t window : {0, 128}) {
      const bool has_codes = !row.accepts(Case({}, {{0, 1}}).args());
      Case input({.num_heads = 16, .num_kv_heads = 2, .window = window, .has_codes = has_codes},
                 {{37, 400}});
      AttentionArgs args = input.args();
      ASSERT_TRUE(row.run(args, on_gpu()).ok());
      const std::vector<float> whole = input.out().floats(DType::kBF16);
      std::vector<AttentionSequence> chunks;
      std::int32_t first = 0;
      for (const std::int32_t count : {2, 24, 30, 144, 200}) {
        AttentionSequence chunk = args.sequences[0];
        chunk.first_row = first;
        chunk.num_rows = count;
        chunk.first_position += first;
        chunks.push_back(chunk);
        first += count;
      }
      const OnGpu chunks_gpu(chunks);
      args.sequences = chunks;
      args.device_sequences = chunks_gpu.data<AttentionSequence>();
      input.out().poison();
      ASSERT_TRUE(row.run(args, on_gpu()).ok());
      EXPECT_TRUE(same_bits(input.out().floats(DType::kBF16), whole)) << window;
    }
  });
}

TEST_F(AttentionOnGpu, ARowOfItsOwnDoesNotDependOnTheBatchOrTheWaves) {
  for_each_cuda(attention_instances(), [](const Instance<AttentionArgs>& row) {
    const bool has_codes = !row.accepts(Case({}, {{0, 1}}).args());
    Case together({.num_kv_heads = 2, .has_codes = has_codes}, {{900, 1}, {1500, 1}, {70, 1}});
    AttentionArgs args = together.args();
    ASSERT_TRUE(row.run(args, on_gpu()).ok());
    const std::vector<float> all = together.out().floats(DType::kBF16);
    // Room for one sequence only.
    args.workspace = args.workspace.first(
        static_cast<std::size_t>(attention_cuda_workspace_bytes(args, 1, 1501)));
    ASSERT_GE(plan_attention_cuda(args).wave, 1);
    together.out().poison();
    ASSERT_TRUE(row.run(args, on_gpu()).ok());
    EXPECT_TRUE(same_bits(together.out().floats(DType::kBF16), all));
    // Alone in the call.
    together.out().poison();
    for (std::size_t i = 0; i < 3; ++i) {
      AttentionArgs one = together.args();
      one.sequences = one.sequences.subspan(i, 1);
      one.device_sequences += i;
      ASSERT_TRUE(row.run(one, on_gpu()).ok());
    }
    EXPECT_TRUE(same_bits(together.out().floats(DType::kBF16), all));
  });
}

// Enough sequences for every block: at each edge of segments and chunks, among others of no and of
// several rows.
std::vector<Rows> many_sequences(std::int32_t num_kv_heads) {
  std::vector<Rows> out = {{0, 1}, {20, 3}, {5, 0}};
  const std::int32_t count = 2 * on_gpu().device->num_sms / num_kv_heads + 7;
  constexpr std::int32_t kEdges[] = {1, 62, 63, 64, 127, 128, 191, 255, 256, 257, 511, 512, 700};
  for (std::int32_t i = 0; i < count; ++i) {
    out.push_back({kEdges[static_cast<std::size_t>(i) % std::size(kEdges)] + i / 16, 1});
  }
  return out;
}

TEST_F(AttentionOnGpu, ManySequencesOfOneRowGetTheBitsOfEachAlone) {
  const Shape shapes[] = {{.num_heads = 64, .num_kv_heads = 8},
                          {.num_heads = 64, .num_kv_heads = 8, .window = 128},
                          {.num_heads = 16, .num_kv_heads = 16, .window = 300},
                          {.num_heads = 128, .num_kv_heads = 8, .page_size = 128, .window = 1}};
  for_each_cuda(attention_instances(), [&](const Instance<AttentionArgs>& row) {
    for (const Shape& shape : shapes) {
      Case together(shape, many_sequences(shape.num_kv_heads));
      AttentionArgs args = together.args();
      if (!row.accepts(args)) {
        continue;
      }
      ASSERT_TRUE(
          is_streamed(plan_attention_cuda(args), shape.num_kv_heads, on_gpu().device->num_sms));
      ASSERT_TRUE(row.run(args, on_gpu()).ok());
      const std::vector<float> all = together.out().floats(DType::kBF16);
      const std::vector<float> want = together.want();
      testing_support::expect_close(all, want, together.bounds(want),
                                    fmt::format("window {}", shape.window));
      together.out().poison();
      const std::span<const AttentionSequence> sequences = args.sequences;
      const AttentionSequence* const on_device = args.device_sequences;
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        args.sequences = sequences.subspan(i, 1);
        args.device_sequences = on_device + i;
        ASSERT_TRUE(row.run(args, on_gpu()).ok());
      }
      EXPECT_TRUE(same_bits(together.out().floats(DType::kBF16), all)) << shape.window;
    }
  });
}

TEST_F(AttentionOnGpu, GivesTheSameBitsEveryTime) {
  for_each_cuda(attention_instances(), [](const Instance<AttentionArgs>& row) {
    for (const std::int32_t window : {0, 128}) {
      const bool has_codes = !row.accepts(Case({}, {{0, 1}}).args());
      Case input({.num_heads = 64, .num_kv_heads = 8, .window = window, .has_codes = has_codes},
                 {{700, 1}, {130, 40}, {1030, 1}});
      const AttentionArgs args = input.args();
      ASSERT_TRUE(row.accepts(args));
      expect_same_bits_every_time(input.out(), [&] { ASSERT_TRUE(row.run(args, on_gpu()).ok()); });
      Case many({.num_heads = 64, .num_kv_heads = 8, .window = window, .has_codes = has_codes},
                many_sequences(8));
      const AttentionArgs streamed = many.args();
      expect_same_bits_every_time(many.out(),
                                  [&] { ASSERT_TRUE(row.run(streamed, on_gpu()).ok()); });
    }
  });
}

TEST_F(AttentionOnGpu, ASinkFarAboveTheScoresTakesAllWeight) {
  for_each_cuda(attention_instances(), [](const Instance<AttentionArgs>& row) {
    const bool has_codes = !row.accepts(Case({}, {{0, 1}}).args());
    Case input({.has_codes = has_codes}, {{300, 1}, {0, 4}});
    AttentionArgs args = input.args();
    const OnGpu sinks(std::vector<float>(8, 300.0F));
    args.sinks = sinks.data<float>();
    ASSERT_TRUE(row.run(args, on_gpu()).ok());
    for (const float value : input.out().floats(DType::kBF16)) {
      ASSERT_EQ(value, 0.0F);
    }
  });
}

}  // namespace
}  // namespace nibble::kernels
