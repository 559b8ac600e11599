// The demo model on a GPU beside the processor, from the checkpoint to the logits.
#include "model/model.h"

#include <algorithm>
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

std::string demo_folder() {
  const char* folder = std::getenv("NIBBLE_DEMO");
  return folder == nullptr ? NIBBLE_SOURCE_DIR "/models/demo" : folder;
}

std::unique_ptr<Model> load(KernelChoice kernels, bool is_dummy = false,
                            DecodePath decode = DecodePath::kGraph, bool has_codes = false) {
  // Random routers have near ties, which bf16 would decide otherwise here and there.
  const DType dtype = is_dummy ? DType::kF32 : DType::kBF16;
  const ModelOptions options{.activation = dtype,
                             .kv_dtype = has_codes ? DType::kE4M3 : dtype,
                             .kernels = kernels,
                             .decode = decode,
                             .max_batch_tokens = kRows,
                             .max_logit_rows = 1,
                             .max_position = 128,
                             .num_pages = {2, 2}};
  Result<ModelConfig> config = load_config(demo_folder());
  if (!config) {
    ADD_FAILURE() << config.error().message();
    return nullptr;
  }
  Result<std::unique_ptr<Model>> model =
      is_dummy ? load_dummy_model(*config, options, 5) : load_model(demo_folder(), options);
  EXPECT_TRUE(model.has_value()) << model.error().message();
  return model ? std::move(*model) : nullptr;
}

// Tokens whose experts, from row kRows on, no rounding decides: the last expert chosen is 0.06
// ahead of the next, in every layer.
BatchPlan rows_from(std::int32_t first, std::int32_t count) {
  BatchPlan plan{.logit_rows = {count - 1}, .page_size = 64};
  for (std::int32_t i = 0; i < count; ++i) {
    plan.token_ids.push_back(((first + i) * 638 + 5) % 4000);
  }
  plan.sequences.push_back({.num_rows = count, .first_position = first});
  for (PageTable& table : plan.sequences[0].tables) {
    table.pages = {1, 0};
  }
  return plan;
}

// Four roundings to bf16 along each of 12 blocks may each fall the other way.
constexpr double kBound = 12 * 4 * 0x1p-8;

// Router logits of a forward pass, in order of layers.
using RouterLogits = std::vector<std::vector<float>>;

Tap record_routers(RouterLogits& to) {
  return [&to](TapPlace place, std::int32_t /*layer*/, std::span<float> values) {
    if (place == TapPlace::kRouter) {
      to.emplace_back(values.begin(), values.end());
    }
  };
}
Tap play_routers(const RouterLogits& from) {
  return [&from](TapPlace place, std::int32_t layer, std::span<float> values) {
    if (place == TapPlace::kRouter) {
      std::copy(from[static_cast<std::size_t>(layer)].begin(),
                from[static_cast<std::size_t>(layer)].end(), values.begin());
    }
  };
}

// The prompt's rows take the experts that they take on the processor, since some of them are close.
// A tap keeps steps from being replayed, so the single rows choose for themselves.
void expect_agreement(Model* cpu, Model* cuda) {
  ASSERT_TRUE(cpu != nullptr && cuda != nullptr);
  const auto vocab = static_cast<std::size_t>(cpu->config().vocab);
  std::vector<float> want(vocab);
  std::vector<float> have(vocab, NAN);
  for (std::int32_t step = 0; step <= kSteps; ++step) {
    const BatchPlan plan = step == 0 ? rows_from(0, kRows) : rows_from(kRows - 1 + step, 1);
    RouterLogits routers;
    cpu->set_tap(record_routers(routers));
    ASSERT_TRUE(cpu->forward(plan, want).ok());
    cuda->set_tap(step == 0 ? play_routers(routers) : Tap());
    const Status status = cuda->forward(plan, have);
    ASSERT_TRUE(status.ok()) << status.message();
    double difference = 0.0;
    double norm = 0.0;
    for (std::size_t i = 0; i < vocab; ++i) {
      difference += (double{have[i]} - want[i]) * (double{have[i]} - want[i]);
      norm += double{want[i]} * want[i];
    }
    EXPECT_LE(std::sqrt(difference / norm), kBound) << "step " << step;
    ::testing::Test::RecordProperty("relative_difference_" + std::to_string(step),
                                    std::to_string(std::sqrt(difference / norm)));
  }
}

TEST_F(ModelOnGpu, AgreesWithTheProcessorOnAPromptAndOnReplayedSteps) {
  const auto cpu = load(KernelChoice::kCpu);
  for (const DecodePath decode : {DecodePath::kGraph, DecodePath::kAuto}) {
    const auto cuda = load(KernelChoice::kCuda, false, decode);
    ASSERT_TRUE(cuda != nullptr);
    expect_agreement(cpu.get(), cuda.get());
    ASSERT_FALSE(HasFailure()) << cuda->decode_path();
  }
}

// Rounded to codes from values that differ by a bf16 rounding, which moves one code in thirty by a
// unit: far below kBound.
TEST_F(ModelOnGpu, AgreesWithTheProcessorOverACacheOfCodes) {
  expect_agreement(load(KernelChoice::kCpu, false, DecodePath::kGraph, true).get(),
                   load(KernelChoice::kCuda, false, DecodePath::kGraph, true).get());
}

// Weights are made in each place. Expert tiles: RandomOnGpu, and `nibble verify` by blocks.
TEST_F(ModelOnGpu, DummyWeightsAreTheSameInBothPlaces) {
  expect_agreement(load(KernelChoice::kCpu, true).get(), load(KernelChoice::kCuda, true).get());
}

constexpr std::int32_t kTokens = 20;

// A prompt, then the tokens that the rows sample, fed back by the host.
std::vector<std::int32_t> one_by_one(Model& model, float temperature) {
  const auto vocab = static_cast<std::size_t>(model.config().vocab);
  std::vector<float> logits(vocab);
  std::vector<std::int32_t> tokens;
  BatchPlan plan = rows_from(0, kRows);
  for (std::int32_t step = 0; step < kTokens; ++step) {
    const Status status = model.forward(plan, logits);
    EXPECT_TRUE(status.ok()) << status.message();
    const kernels::SampleRow row{
        .seed = 9, .counter = static_cast<std::uint64_t>(step), .temperature = temperature};
    std::int32_t token = -1;
    const Status drawn = kernels::sample_rows_ref({.logits = logits.data(),
                                                   .rows = &row,
                                                   .ids = &token,
                                                   .num_rows = 1,
                                                   .vocab = model.config().vocab});
    EXPECT_TRUE(drawn.ok()) << drawn.message();
    tokens.push_back(token);
    plan = rows_from(kRows + step, 1);
    plan.token_ids = {token};
  }
  return tokens;
}

// The same, each step started before the one before it is finished.
std::vector<std::int32_t> one_ahead(Model& model, float temperature) {
  std::vector<std::int32_t> tokens;
  const auto finish = [&] {
    const auto done = model.finish();
    ASSERT_TRUE(done.has_value()) << done.error().message();
    tokens.insert(tokens.end(), done->begin(), done->end());
  };
  for (std::int32_t step = 0; step < kTokens; ++step) {
    BatchPlan plan = step == 0 ? rows_from(0, kRows) : rows_from(kRows + step - 1, 1);
    if (step > 0) {
      plan.token_ids = {-1};
    }
    const SampleBatch batch{
        .rows = {
            {.seed = 9, .counter = static_cast<std::uint64_t>(step), .temperature = temperature}}};
    const Status status = model.start(plan, batch);
    EXPECT_TRUE(status.ok()) << status.message();
    if (step > 0) {
      finish();
    }
  }
  finish();
  return tokens;
}

TEST_F(ModelOnGpu, StepsOneAheadGiveTheTokensOfStepsOneByOne) {
  for (const DecodePath decode : {DecodePath::kGraph, DecodePath::kAuto}) {
    const auto cuda = load(KernelChoice::kCuda, false, decode);
    ASSERT_TRUE(cuda != nullptr);
    ASSERT_TRUE(cuda->can_sample());
    for (const float temperature : {0.0F, 1.0F}) {
      const auto want = one_by_one(*cuda, temperature);
      EXPECT_EQ(one_ahead(*cuda, temperature), want) << cuda->decode_path() << temperature;
    }
  }
}

}  // namespace
}  // namespace nibble::model
