// Teacher-forced logits against those of transformers, in float32, at every position that the
// golden files give: past the window's edge at 128 and past 1,000 tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "model/model.h"
#include "support/golden_logits.h"

namespace nibble::model {
namespace {

// The promise. docs/numerics.md derives what float32 sums of these sizes can differ by.
constexpr float kBound = 1e-3F;

using Golden = testing_support::GoldenSequence;

constexpr std::int32_t kPage = 16;

// One sequence alone, `chunk` tokens a step, every page kept.
class Replay {
 public:
  Replay(const std::string& folder, KernelChoice kernels, std::int32_t max_tokens,
         std::int32_t chunk)
      : chunk_(chunk), num_pages_((max_tokens + kPage - 1) / kPage) {
    ModelOptions options;
    options.activation = DType::kF32;
    options.kv_dtype = DType::kF32;
    options.kernels = kernels;
    options.num_threads = 2;
    options.max_batch_tokens = chunk;
    options.max_logit_rows = chunk;
    options.page_size = kPage;
    options.num_pages[0] = options.num_pages[1] = num_pages_;
    auto model = load_model(folder, options);
    if (!model) {
      ADD_FAILURE() << model.error().message();
      return;
    }
    model_ = std::move(model).value();
  }

  bool is_loaded() const { return model_ != nullptr; }

  // The largest difference to the golden logits.
  float largest_difference(const Golden& golden) {
    float largest = 0.0F;
    std::size_t next = 0;  // of golden.positions
    const auto vocab = static_cast<std::size_t>(model_->config().vocab);
    for (std::int32_t first = 0; first < static_cast<std::int32_t>(golden.ids.size());
         first += chunk_) {
      const BatchPlan plan = step(golden, first);
      std::vector<float> logits(plan.logit_rows.size() * vocab);
      const Status status = model_->forward(plan, logits);
      EXPECT_TRUE(status.ok()) << status.message();
      for (std::size_t i = 0; i < logits.size(); ++i) {
        const float difference = std::abs(logits[i] - golden.logits[next * vocab + i]);
        largest = difference <= largest ? largest : difference;  // NaN counts
      }
      next += plan.logit_rows.size();
    }
    EXPECT_EQ(next, golden.positions.size());
    return largest;
  }

 private:
  BatchPlan step(const Golden& golden, std::int32_t first) const {
    const auto end = std::min(first + chunk_, static_cast<std::int32_t>(golden.ids.size()));
    BatchPlan plan;
    plan.page_size = kPage;
    plan.token_ids.assign(golden.ids.begin() + first, golden.ids.begin() + end);
    SequencePlan sequence{.num_rows = end - first, .first_position = first};
    for (PageTable& table : sequence.tables) {
      for (std::int32_t page = 0; page < num_pages_; ++page) {
        table.pages.push_back(num_pages_ - 1 - page);  // not in the order of the tokens
      }
    }
    plan.sequences.push_back(sequence);
    for (const std::int32_t position : golden.positions) {
      if (position >= first && position < end) {
        plan.logit_rows.push_back(position - first);
      }
    }
    return plan;
  }

  std::int32_t chunk_;
  std::int32_t num_pages_;
  std::unique_ptr<Model> model_;
};

struct Case {
  const char* model;   // folder under the source tree
  const char* golden;  // folder under tests/golden
  KernelChoice kernels;
  std::int32_t chunk;
};

// "tiny_bf16_cpu_by_512"
std::string name_of(const Case& c) {
  std::string name = c.model;
  name = name.substr(name.rfind('/') + 1) +
         (c.kernels == KernelChoice::kReference ? "_reference_by_" : "_cpu_by_") +
         std::to_string(c.chunk);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string case_name(const testing::TestParamInfo<Case>& info) { return name_of(info.param); }
void PrintTo(const Case& c, std::ostream* out) { *out << name_of(c); }

class GoldenLogits : public testing::TestWithParam<Case> {};

TEST_P(GoldenLogits, AgreeAtEveryGivenPosition) {
  const Case& c = GetParam();
  const std::string source = NIBBLE_SOURCE_DIR "/";
  const std::map<std::string, Golden> golden =
      testing_support::read_golden(source + "tests/golden/" + c.golden + "/golden.safetensors");
  ASSERT_FALSE(golden.empty());
  Replay replay(source + c.model, c.kernels, 1312, c.chunk);
  ASSERT_TRUE(replay.is_loaded());
  float largest = 0.0F;
  for (const auto& [name, sequence] : golden) {
    const float difference = replay.largest_difference(sequence);
    EXPECT_LE(difference, kBound) << c.model << " " << name;
    largest = std::max(largest, difference);
  }
  RecordProperty("largest_difference", std::to_string(largest));
  std::printf("largest difference %.3g\n", largest);
}

constexpr auto kRef = KernelChoice::kReference;
constexpr auto kCpu = KernelChoice::kCpu;
INSTANTIATE_TEST_SUITE_P(Models, GoldenLogits,
                         testing::Values(Case{"tests/golden/tiny", "tiny", kRef, 300},
                                         Case{"tests/golden/odd", "odd", kRef, 300},
                                         Case{"tests/golden/tiny", "tiny", kCpu, 512},
                                         Case{"tests/golden/tiny", "tiny", kCpu, 129},
                                         Case{"tests/golden/odd", "odd", kCpu, 512},
                                         Case{"tests/golden/odd", "odd", kCpu, 7},
                                         Case{"tests/golden/tiny-bf16", "tiny", kCpu, 512},
                                         Case{"tests/golden/tiny-original", "tiny", kCpu, 512},
                                         Case{"models/demo", "demo", kCpu, 512}),
                         case_name);

}  // namespace
}  // namespace nibble::model
