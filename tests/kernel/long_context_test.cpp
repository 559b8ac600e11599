// The demo model far into its context, on a GPU beside the processor: past the 4,096 positions that
// its rotary frequencies were made for, and past 32k.
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernel/gpu.h"
#include "model/model.h"

namespace nibble::model {
namespace {

using LongContextOnGpu = kernels::GpuTest;

constexpr std::int32_t kPageSize = 64;
constexpr std::int32_t kChunk = 2048;  // rows of a step
constexpr std::int32_t kMaxPosition = 34 * 1024;
constexpr std::int32_t kPages = kMaxPosition / kPageSize;
constexpr std::int32_t kVocab = 4088;  // without control tokens

std::unique_ptr<Model> load(KernelChoice kernels, DType cache) {
  const char* moved = std::getenv("NIBBLE_DEMO");
  const std::string folder = moved == nullptr ? NIBBLE_SOURCE_DIR "/models/demo" : moved;
  Result<std::unique_ptr<Model>> model = load_model(folder, {.activation = DType::kBF16,
                                                             .kv_dtype = cache,
                                                             .kernels = kernels,
                                                             .max_batch_tokens = kChunk,
                                                             .max_logit_rows = 1,
                                                             .max_position = kMaxPosition,
                                                             .page_size = kPageSize,
                                                             .num_pages = {kPages, kPages}});
  EXPECT_TRUE(model.has_value()) << model.error().message();
  return model ? std::move(*model) : nullptr;
}

// Rows of one sequence whose pages stand in reverse.
BatchPlan rows_from(std::int32_t first, std::int32_t count) {
  BatchPlan plan{.logit_rows = {count - 1}, .page_size = kPageSize};
  for (std::int32_t i = 0; i < count; ++i) {
    plan.token_ids.push_back(((first + i) * 977 + 13) % kVocab);
  }
  plan.sequences.push_back({.num_rows = count, .first_position = first});
  for (PageTable& table : plan.sequences[0].tables) {
    for (std::int32_t page = 0; page * kPageSize < first + count; ++page) {
      table.pages.push_back(kPages - 1 - page);
    }
  }
  return plan;
}

// Both compute every row; the GPU takes the processor's experts, where some are close.
class Pair {
 public:
  explicit Pair(DType cache)
      : cpu_(load(KernelChoice::kCpu, cache)), cuda_(load(KernelChoice::kCuda, cache)) {}
  bool is_there() const { return cpu_ != nullptr && cuda_ != nullptr; }
  const ModelConfig& config() const { return cpu_->config(); }

  // |difference| / |want| of the last row's logits.
  double forward(std::int32_t first, std::int32_t count) {
    const BatchPlan plan = rows_from(first, count);
    std::vector<float> want(static_cast<std::size_t>(config().vocab));
    std::vector<float> have(want.size(), NAN);
    std::vector<std::vector<float>> routers;
    cpu_->set_tap([&](TapPlace place, std::int32_t, std::span<float> values) {
      if (place == TapPlace::kRouter) {
        routers.emplace_back(values.begin(), values.end());
      }
    });
    cuda_->set_tap([&](TapPlace place, std::int32_t layer, std::span<float> values) {
      if (place == TapPlace::kRouter) {
        std::copy(routers[static_cast<std::size_t>(layer)].begin(),
                  routers[static_cast<std::size_t>(layer)].end(), values.begin());
      }
    });
    EXPECT_TRUE(cpu_->forward(plan, want).ok());
    const Status status = cuda_->forward(plan, have);
    EXPECT_TRUE(status.ok()) << status.message();
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      difference += (double{have[i]} - want[i]) * (double{have[i]} - want[i]);
      norm += double{want[i]} * want[i];
    }
    return std::sqrt(difference / norm);
  }

 private:
  std::unique_ptr<Model> cpu_;
  std::unique_ptr<Model> cuda_;
};

// Four roundings to bf16 along each of 12 blocks may each fall the other way.
constexpr double kBound = 12 * 4 * 0x1p-8;

void expect_agreement(DType cache, const char* name) {
  Pair pair(cache);
  ASSERT_TRUE(pair.is_there());
  ASSERT_GT(pair.config().rope.factor, 1.0) << "positions past 4,096 are what YaRN is for";
  double largest = 0.0;
  const auto compare = [&](std::int32_t first, std::int32_t count) {
    const double difference = pair.forward(first, count);
    ASSERT_LE(difference, kBound) << name << ": " << count << " rows from " << first;
    largest = std::max(largest, difference);
  };
  std::int32_t position = 0;
  for (const std::int32_t depth : {4096, 16384, 32768}) {
    while (position < depth) {
      compare(position, kChunk);
      position += kChunk;
    }
    for (std::int32_t row = 0; row < 3; ++row) {  // single rows, which are other kernels
      compare(position++, 1);
    }
    compare(position, kChunk - 3);  // a prompt goes on within a page
    position += kChunk - 3;
    if (::testing::Test::HasFatalFailure()) {
      return;
    }
  }
  ::testing::Test::RecordProperty(std::string("largest_difference_") + name,
                                  std::to_string(largest));
}

TEST_F(LongContextOnGpu, AgreesDeepIntoTheContext) { expect_agreement(DType::kBF16, "bf16"); }

TEST_F(LongContextOnGpu, AgreesDeepIntoTheContextOverACacheOfCodes) {
  expect_agreement(DType::kE4M3, "e4m3");
}

}  // namespace
}  // namespace nibble::model
