// The demo model on a GPU beside the processor, from the checkpoint to the logits.
#include "model/model.h"

#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>

#include "kernel/gpu.h"

namespace nibble::model {
namespace {

using ModelOnGpu = kernels::GpuTest;

constexpr std::int32_t kRows = 40;
constexpr std::int32_t kSteps = 6;  // of one row each: the first runs, the second is captured

std::unique_ptr<Model> load(KernelChoice kernels) {
  const char* folder = std::getenv("NIBBLE_DEMO");
  ModelOptions options{.kernels = kernels,
                       .max_batch_tokens = kRows,
                       .max_logit_rows = 1,
                       .max_position = 128,
                       .num_pages = {2, 2}};
  Result<std::unique_ptr<Model>> model =
      load_model(folder == nullptr ? NIBBLE_SOURCE_DIR "/models/demo" : folder, options);
  EXPECT_TRUE(model.has_value()) << model.error().message();
  return model ? std::move(*model) : nullptr;
}

BatchPlan rows_from(std::int32_t first, std::int32_t count) {
  BatchPlan plan{.logit_rows = {count - 1}, .page_size = 64};
  for (std::int32_t i = 0; i < count; ++i) {
    plan.token_ids.push_back(((first + i) * 977 + 13) % 4000);
  }
  plan.sequences.push_back({.num_rows = count, .first_position = first});
  for (PageTable& table : plan.sequences[0].tables) {
    table.pages = {1, 0};
  }
  return plan;
}

// Four roundings to bf16 along each of 12 blocks may each fall the other way.
constexpr double kBound = 12 * 4 * 0x1p-8;

TEST_F(ModelOnGpu, AgreesWithTheProcessorOnAPromptAndOnReplayedSteps) {
  const auto cpu = load(KernelChoice::kCpu);
  const auto cuda = load(KernelChoice::kCuda);
  ASSERT_TRUE(cpu != nullptr && cuda != nullptr);
  const auto vocab = static_cast<std::size_t>(cpu->config().vocab);
  std::vector<float> want(vocab);
  std::vector<float> have(vocab, NAN);
  for (std::int32_t step = 0; step <= kSteps; ++step) {
    const BatchPlan plan = step == 0 ? rows_from(0, kRows) : rows_from(kRows - 1 + step, 1);
    ASSERT_TRUE(cpu->forward(plan, want).ok());
    const Status status = cuda->forward(plan, have);
    ASSERT_TRUE(status.ok()) << status.message();
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < vocab; ++i) {
      difference += (double{have[i]} - want[i]) * (double{have[i]} - want[i]);
      norm += double{want[i]} * want[i];
    }
    EXPECT_LE(std::sqrt(difference / norm), kBound) << "step " << step;
    RecordProperty("relative_difference_" + std::to_string(step),
                   std::to_string(std::sqrt(difference / norm)));
  }
}

}  // namespace
}  // namespace nibble::model
