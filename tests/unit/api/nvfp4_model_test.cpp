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
#include "support/golden_logits.h"
#include "weights/checkpoint.h"

namespace nibble::commands {
namespace {

namespace fs = std::filesystem;
using model::KernelChoice;
using testing::HasSubstr;
using testing_support::GoldenSequence;
using testing_support::TemporaryFolder;

// docs/numerics.md: float32 activations; an NVFP4 block.
constexpr float kLogitBound = 1e-3F;
constexpr double kMostABlockLoses = 0.1927;

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

// Logits in float32 of one sequence at every position, [ids, vocab].
std::vector<float> logits_of(const std::string& folder, KernelChoice kernels,
                             const std::vector<std::int32_t>& ids) {
  const auto num_tokens = static_cast<std::int32_t>(ids.size());
  auto loaded = load(folder, kernels, num_tokens);
  EXPECT_TRUE(loaded.has_value()) << loaded.error().message();
  if (!loaded.has_value()) {
    return {};
  }
  model::BatchPlan plan{.page_size = num_tokens};
  plan.token_ids = ids;
  for (std::int32_t i = 0; i < num_tokens; ++i) {
    plan.logit_rows.push_back(i);
  }
  model::SequencePlan sequence{.num_rows = num_tokens};
  sequence.tables[0].pages = sequence.tables[1].pages = {0};
  plan.sequences.push_back(sequence);
  std::vector<float> logits(ids.size() * (*loaded)->config().vocab);
  EXPECT_TRUE((*loaded)->forward(plan, logits).ok());
  return logits;
}

std::vector<std::int32_t> random_ids(std::int32_t count) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  const testing_support::CounterRng rng(5);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = rng.below(i, 512);  // the smallest vocabulary here
  }
  return ids;
}

double root_mean_square(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float value : values) {
    sum += double{value} * value;
  }
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// `tiny` in bf16 with its experts moved off the FP4 grid, as tools/golden/nvfp4_golden.py does it:
// low mantissa bits of element i of each tensor [expert, in, out].
void make_off_grid(const std::string& folder) {
  convert(kTiny, folder, "bf16");
  const weights::Checkpoint source = weights::Checkpoint::open(folder).value();
  int num_moved = 0;
  for (const auto& [name, tensor] : source.tensors()) {
    if (!name.ends_with("_proj") || name.find("experts") == std::string::npos) {
      continue;
    }
    const std::string path = tensor.file->file().path();
    std::string bytes = testing_support::read_file(path);
    const auto offset =
        static_cast<const std::byte*>(tensor.view.data) - tensor.file->file().bytes().data();
    for (std::int64_t i = 0; i < tensor.view.num_elems(); ++i) {
      char& low = bytes[offset + 2 * i];
      low = static_cast<char>(low ^ (static_cast<std::uint32_t>(i) * 2654435761U >> 25U));
    }
    testing_support::write_file(path, bytes);
    ++num_moved;
  }
  ASSERT_EQ(num_moved, 8);
}

// docs/numerics.md, "NVFP4 experts": the float32 values are the same, and so are the sums.
TEST(Nvfp4Model, DemoGivesTheLogitsOfItsMxfp4FormBitForBit) {
  const TemporaryFolder folder;
  convert(kDemo, folder / "nvfp4", "nvfp4");
  const std::vector<std::int32_t> ids = random_ids(200);
  const std::vector<float> want = logits_of(kDemo, KernelChoice::kCpu, ids);
  EXPECT_EQ(logits_of(folder / "nvfp4", KernelChoice::kCpu, ids), want);
  EXPECT_GT(root_mean_square(want), 0.1);
}

std::vector<float> at_positions(const std::vector<float>& logits, const GoldenSequence& golden) {
  const std::size_t vocab = golden.logits.size() / golden.positions.size();
  std::vector<float> out;
  for (const std::int32_t position : golden.positions) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(position * vocab);
    out.insert(out.end(), row, row + static_cast<std::ptrdiff_t>(vocab));
  }
  return out;
}

std::vector<float> difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  std::vector<float> out(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    out[i] = a[i] - b[i];
  }
  return out;
}

float largest(const std::vector<float>& values) {
  float out = 0.0F;
  for (const float value : values) {
    out = std::abs(value) <= out ? out : std::abs(value);  // NaN counts
  }
  return out;
}

// docs/numerics.md, "NVFP4 experts". Numpy quantises the weights and runs both models by itself:
// each of ours is within the float32 bound of it, so their distance is within twice that of
// numpy's.
TEST(Nvfp4Model, LogitsMoveFromThoseOfTheWeightsAsFarAsNumpyComputes) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(make_off_grid(folder / "bf16"));
  for (const QuantizeTensor& row : convert(folder / "bf16", folder / "nvfp4", "nvfp4").tensors) {
    EXPECT_GT(row.rms_error / row.rms_value, 0.01) << row.name;
    EXPECT_LT(row.rms_error / row.rms_value, kMostABlockLoses) << row.name;
  }
  const auto golden =
      testing_support::read_golden(NIBBLE_SOURCE_DIR "/tests/golden/nvfp4.safetensors");
  ASSERT_EQ(golden.size(), 2U);
  const GoldenSequence& original = golden.at("bf16");
  const GoldenSequence& rounded = golden.at("nvfp4");
  ASSERT_EQ(original.ids.size(), 200U);
  const auto found = [&](const GoldenSequence& sequence, const std::string& name) {
    return at_positions(logits_of(folder / name, KernelChoice::kCpu, sequence.ids), sequence);
  };
  const std::vector<float> before = found(original, "bf16");
  const std::vector<float> after = found(rounded, "nvfp4");
  EXPECT_LE(largest(difference(before, original.logits)), kLogitBound);
  EXPECT_LE(largest(difference(after, rounded.logits)), kLogitBound);
  const double bound =
      root_mean_square(difference(rounded.logits, original.logits)) + 2 * kLogitBound;
  const double moved = root_mean_square(difference(after, before));
  EXPECT_LE(moved, bound);
  EXPECT_GT(moved, 10 * kLogitBound) << "nothing was rounded";
  std::printf("logits of %.3g moved by %.3g, bound %.3g (root mean squares)\n",
              root_mean_square(before), moved, bound);
}

// Values under a power of two are exact in bf16, so the converted checkpoint is the same model; and
// the scalar reference agrees.
TEST(Nvfp4Model, EqualsItsDequantisedCheckpoint) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(make_off_grid(folder / "bf16"));
  convert(folder / "bf16", folder / "nvfp4", "nvfp4");
  convert(folder / "nvfp4", folder / "back", "bf16");
  const std::vector<std::int32_t> ids = random_ids(40);
  const std::vector<float> want = logits_of(folder / "back", KernelChoice::kCpu, ids);
  EXPECT_EQ(logits_of(folder / "nvfp4", KernelChoice::kCpu, ids), want);
  const std::vector<float> reference = logits_of(folder / "nvfp4", KernelChoice::kReference, ids);
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(reference[i], want[i], kLogitBound) << i;
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
  const auto refused =
      verify({.model = folder / "nvfp4", .num_tokens = 40, .activation = Activation::kInt8},
             [](std::int32_t, std::int32_t) {});
  EXPECT_EQ(refused.error().code(), Code::kUnsupported);
  EXPECT_EQ(refused.error().message(), "int8 inputs of experts want weights of mxfp4, found nvfp4");
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
