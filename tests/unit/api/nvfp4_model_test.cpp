// Checkpoints that `quantize --format nvfp4` writes, run by the model beside those they come from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "api/commands/inspect.h"
#include "api/commands/quantize.h"
#include "api/commands/verify.h"
#include "model/model.h"
#include "support/counter_rng.h"
#include "support/folder.h"
#include "weights/checkpoint.h"

namespace nibble::commands {
namespace {

namespace fs = std::filesystem;
using model::KernelChoice;
using testing::HasSubstr;
using testing_support::TemporaryFolder;

const std::string kDemo = NIBBLE_SOURCE_DIR "/models/demo";
const std::string kTiny = NIBBLE_SOURCE_DIR "/tests/golden/tiny";

QuantizeReport convert(const std::string& source, const std::string& to, const char* format) {
  QuantizeOptions options;
  options.source = source;
  options.destination = to;
  options.format = format;
  options.num_threads = 2;
  const Result<QuantizeReport> report = quantize(options, {});
  EXPECT_TRUE(report.has_value()) << report.error().message();
  return report.has_value() ? *report : QuantizeReport{};
}

Result<std::unique_ptr<model::Model>> load(const std::string& folder, KernelChoice kernels,
                                           std::int32_t num_tokens) {
  model::ModelOptions options;
  options.activation = options.kv_dtype = DType::kF32;
  options.kernels = kernels;
  options.num_threads = 2;
  options.max_batch_tokens = options.max_logit_rows = num_tokens;
  options.page_size = num_tokens;
  options.num_pages[0] = options.num_pages[1] = 1;
  return model::load_model(folder, options);
}

// Router logits of each layer, in order.
using Routers = std::vector<std::vector<float>>;

// Logits in float32 of `num_tokens` random ids as one sequence. With `played`, experts are chosen
// as in another run.
std::vector<float> logits_of(const std::string& folder, KernelChoice kernels,
                             std::int32_t num_tokens, Routers* record = nullptr,
                             const Routers* played = nullptr) {
  auto loaded = load(folder, kernels, num_tokens);
  EXPECT_TRUE(loaded.has_value()) << loaded.error().message();
  if (!loaded.has_value()) {
    return {};
  }
  model::Model& model = **loaded;
  model.set_tap([&](model::TapPlace place, std::int32_t layer, std::span<float> values) {
    if (place == model::TapPlace::kRouter && record != nullptr) {
      record->emplace_back(values.begin(), values.end());
    }
    if (place == model::TapPlace::kRouter && played != nullptr) {
      std::copy((*played)[layer].begin(), (*played)[layer].end(), values.begin());
    }
  });
  model::BatchPlan plan{.page_size = num_tokens};
  const testing_support::CounterRng rng(5);
  for (std::int32_t i = 0; i < num_tokens; ++i) {
    plan.token_ids.push_back(rng.below(static_cast<std::uint64_t>(i), model.config().vocab));
    plan.logit_rows.push_back(i);
  }
  model::SequencePlan sequence{.num_rows = num_tokens};
  sequence.tables[0].pages = sequence.tables[1].pages = {0};
  plan.sequences.push_back(sequence);
  std::vector<float> logits(static_cast<std::size_t>(num_tokens) * model.config().vocab);
  EXPECT_TRUE(model.forward(plan, logits).ok());
  return logits;
}

double root_mean_square(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float value : values) {
    sum += double{value} * value;
  }
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// A bf16 checkpoint whose experts lie off the FP4 grid: full mantissas.
void make_off_grid(const std::string& folder) {
  convert(kTiny, folder, "bf16");
  const weights::Checkpoint source = weights::Checkpoint::open(folder).value();
  for (const auto& [name, tensor] : source.tensors()) {
    if (!name.ends_with("_proj") || name.find("experts") == std::string::npos) {
      continue;
    }
    const std::string path = tensor.file->file().path();
    std::string bytes = testing_support::read_file(path);
    const auto offset =
        static_cast<const std::byte*>(tensor.view.data) - tensor.file->file().bytes().data();
    for (std::int64_t at = offset; at < offset + tensor.view.bytes(); at += 2) {
      bytes[at] = static_cast<char>(bytes[at] ^ (at * 37 & 0x7F));  // mantissa bits
    }
    testing_support::write_file(path, bytes);
  }
}

// docs/numerics.md, "NVFP4 experts": the float32 values are the same, and so are the sums.
TEST(Nvfp4Model, DemoGivesTheLogitsOfItsMxfp4FormBitForBit) {
  const TemporaryFolder folder;
  convert(kDemo, folder / "nvfp4", "nvfp4");
  const std::vector<float> want = logits_of(kDemo, KernelChoice::kCpu, 200);
  EXPECT_EQ(logits_of(folder / "nvfp4", KernelChoice::kCpu, 200), want);
  EXPECT_GT(root_mean_square(want), 0.1);
}

TEST(Nvfp4Model, LogitsStayWithinTheBoundThatTheWeightsErrorsGive) {
  const TemporaryFolder folder;
  make_off_grid(folder / "bf16");
  const QuantizeReport report = convert(folder / "bf16", folder / "nvfp4", "nvfp4");
  double bound = 0.0;
  for (const QuantizeTensor& row : report.tensors) {
    const double relative = row.rms_error / row.rms_value;
    EXPECT_GT(relative, 0.01) << row.name;
    EXPECT_LT(relative, 0.2) << row.name;  // what a block can lose at most
    bound += (row.name.ends_with("gate_up_proj") ? 2.0 : 1.0) * relative;
  }
  Routers routers;
  const std::vector<float> want = logits_of(folder / "bf16", KernelChoice::kCpu, 200, &routers);
  std::vector<float> difference =
      logits_of(folder / "nvfp4", KernelChoice::kCpu, 200, nullptr, &routers);
  for (std::size_t i = 0; i < want.size(); ++i) {
    difference[i] -= want[i];
  }
  const double found = root_mean_square(difference) / root_mean_square(want);
  EXPECT_LE(found, bound);
  EXPECT_GT(found, 0.0);
  std::printf("found %.3g of %.3g\n", found, bound);
}

// Values under a power of two are exact in bf16, so the converted checkpoint is the same model; and
// the scalar reference agrees.
TEST(Nvfp4Model, EqualsItsDequantisedCheckpoint) {
  const TemporaryFolder folder;
  make_off_grid(folder / "bf16");
  convert(folder / "bf16", folder / "nvfp4", "nvfp4");
  convert(folder / "nvfp4", folder / "back", "bf16");
  const std::vector<float> want = logits_of(folder / "back", KernelChoice::kCpu, 40);
  EXPECT_EQ(logits_of(folder / "nvfp4", KernelChoice::kCpu, 40), want);
  const std::vector<float> reference = logits_of(folder / "nvfp4", KernelChoice::kReference, 40);
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(reference[i], want[i], 1e-3) << i;  // docs/numerics.md, float32 activations
  }
}

TEST(Nvfp4Model, VerifyAndInspectTakeIt) {
  const TemporaryFolder folder;
  convert(kTiny, folder / "nvfp4", "nvfp4");
  for (const Activation activation : {Activation::kF32, Activation::kBf16}) {
    const auto report =
        verify({.model = folder / "nvfp4", .num_tokens = 40, .activation = activation},
               [](std::int32_t, std::int32_t) {});
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_TRUE(report->is_ok);
  }
  const InspectReport mxfp4 = inspect(kTiny).value();
  const InspectReport nvfp4 = inspect(folder / "nvfp4").value();
  EXPECT_EQ(nvfp4.quantisation, "nvfp4");
  EXPECT_THAT(nvfp4.problems, testing::IsEmpty());
  EXPECT_EQ(nvfp4.parameters, mxfp4.parameters);
  EXPECT_EQ(nvfp4.active_parameters, mxfp4.active_parameters);
}

TEST(Nvfp4Model, RefusesGlobalScalesThatAreNotPositiveNumbers) {
  for (const float bad : {0.0F, -1.0F, INFINITY, NAN}) {
    const TemporaryFolder folder;
    convert(kTiny, folder / "nvfp4", "nvfp4");
    const weights::Checkpoint source = weights::Checkpoint::open(folder / "nvfp4").value();
    const auto* tensor = source.find("model.layers.1.mlp.experts.down_proj_weight_scale_2");
    ASSERT_NE(tensor, nullptr);
    const std::string path = tensor->file->file().path();
    std::string bytes = testing_support::read_file(path);
    const auto offset =
        static_cast<const std::byte*>(tensor->view.data) - tensor->file->file().bytes().data();
    std::memcpy(&bytes[offset + 8], &bad, sizeof(bad));  // of expert 2
    testing_support::write_file(path, bytes);
    const auto loaded = load(folder / "nvfp4", KernelChoice::kCpu, 4);
    ASSERT_FALSE(loaded.has_value());
    EXPECT_EQ(loaded.error().code(), Code::kCorrupt);
    EXPECT_THAT(loaded.error().message(),
                HasSubstr("model.layers.1.mlp.experts.down_proj_weight_scale_2: want positive "
                          "numbers, found"));
  }
}

}  // namespace
}  // namespace nibble::commands
