#include "api/commands/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/commands/presets.h"
#include "api/device_choice.h"
#include "model/tensor_list.h"

namespace nibble::commands {
namespace {

using testing::HasSubstr;

double gigabytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

TokenCost preset_cost(const char* name) {
  const std::optional<Preset> preset = find_preset(name);
  return token_cost(preset->config, model::configured_expert_format(preset->config));
}

// Published sizes, to the digits in which they are published.
TEST(Doctor, TokenCostOfThePublishedShapes) {
  const TokenCost small = preset_cost("gpt-oss-20b");
  EXPECT_NEAR(gigabytes(small.expert_bytes), 1.27, 0.005);
  EXPECT_NEAR(gigabytes(small.attention_bytes), 1.27, 0.011);
  EXPECT_NEAR(gigabytes(small.head_bytes), 1.16, 0.005);
  EXPECT_NEAR(gigabytes(small.bytes()), 3.70, 0.011);
  const TokenCost large = preset_cost("gpt-oss-120b");
  EXPECT_NEAR(gigabytes(large.expert_bytes), 1.90, 0.005);
  EXPECT_NEAR(gigabytes(large.attention_bytes), 1.91, 0.03);
  EXPECT_NEAR(gigabytes(large.bytes()), 4.97, 0.03);
}

TEST(Doctor, ExpertsCostWhatTheirFormTakes) {
  const std::optional<Preset> preset = find_preset("gpt-oss-20b");
  const TokenCost mxfp4 = token_cost(preset->config, model::ExpertFormat::kMxfp4);
  const TokenCost nvfp4 = token_cost(preset->config, model::ExpertFormat::kNvfp4);
  const TokenCost bf16 = token_cost(preset->config, model::ExpertFormat::kBf16Transposed);
  EXPECT_EQ(bf16.expert_bytes * 17, mxfp4.expert_bytes * 64);
  EXPECT_EQ(nvfp4.expert_bytes * 17, mxfp4.expert_bytes * 18);
  EXPECT_EQ(bf16.flops, mxfp4.flops);
}

TEST(Doctor, WindowLayersHoldNoMoreThanTheWindow) {
  const model::ModelConfig config = find_preset("gpt-oss-20b")->config;  // 12 of 24 layers, 128
  const std::int64_t token = std::int64_t{2} * 8 * 64 * 2;
  EXPECT_EQ(cache_bytes(config, 100), std::int64_t{24} * 100 * token);
  EXPECT_EQ(cache_bytes(config, 1000), std::int64_t{12 * 1000 + 12 * 128} * token);
}

DoctorModel model_in(std::int64_t weights, std::int64_t available, const DoctorOptions& options,
                     MemoryOf memory = MemoryOf::kHost) {
  DoctorModel model;
  model.weight_bytes = weights;
  model.available_bytes = available;
  judge_fit(model, find_preset("gpt-oss-20b")->config, options, memory);
  return model;
}
DoctorModel model_in(std::int64_t weights, std::int64_t available, std::int32_t max_model_len) {
  return model_in(weights, available, DoctorOptions{.max_model_len = max_model_len});
}

// One token of the 12 full layers: key and value, 8 heads of 64, bf16.
constexpr std::int64_t kTokenBytes = std::int64_t{12} * 2 * 8 * 64 * 2;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(Doctor, FitsAsTheEngineDecides) {
  const DoctorModel roomy = model_in(14 * kGiB, 64 * kGiB, 0);
  EXPECT_TRUE(roomy.fits);
  EXPECT_EQ(roomy.max_model_len, 131072);
  EXPECT_GE(roomy.cache_bytes, 131072 * kTokenBytes);
  const DoctorModel tight = model_in(14 * kGiB, 16 * kGiB, 0);
  EXPECT_TRUE(tight.fits);
  EXPECT_LT(tight.max_model_len, kGiB / kTokenBytes);
  EXPECT_LT(tight.weight_bytes + tight.cache_bytes, tight.available_bytes);
  const DoctorModel asked = model_in(14 * kGiB, 16 * kGiB, 131072);
  EXPECT_FALSE(asked.fits);
  EXPECT_THAT(asked.refusal, HasSubstr("131072"));
  EXPECT_FALSE(model_in(14 * kGiB, 14 * kGiB, 0).fits);
}

// The parts of a device's memory fill it but for less than a page, and are told apart.
TEST(Doctor, PartsOfADeviceAddUpToWhatIsThere) {
  for (const KvCacheType cache : {KvCacheType::kAuto, KvCacheType::kFp8}) {
    const DoctorModel model = model_in(
        14 * kGiB, 40 * kGiB, {.kv_cache = cache, .max_num_seqs = 64, .max_batch_tokens = 8192},
        MemoryOf::kDevice);
    ASSERT_TRUE(model.fits) << model.refusal;
    EXPECT_EQ(model.memory.weight_bytes, 14 * kGiB);
    EXPECT_EQ(model.memory.cache_bytes, model.cache_bytes);
    EXPECT_GT(model.memory.step_bytes, kGiB);  // 8,192 rows
    EXPECT_LE(model.memory.total_bytes(), 40 * kGiB);
    EXPECT_GT(model.memory.total_bytes(), 39 * kGiB);
  }
  const DoctorModel host = model_in(14 * kGiB, 16 * kGiB, 4096);
  EXPECT_EQ(host.memory.step_bytes, 0);
  EXPECT_EQ(host.memory.reserve_bytes, kGiB);
}

TEST(Doctor, AnEightBitCacheMakesRoom) {
  const DoctorOptions narrow{.kv_cache = KvCacheType::kFp8};
  EXPECT_GT(model_in(14 * kGiB, 16 * kGiB, narrow).max_model_len,
            1.9 * model_in(14 * kGiB, 16 * kGiB, 0).max_model_len);
}

TEST(Doctor, SaysWhereAModelIsComputed) {
  const auto cpu = doctor({.num_threads = 1, .device = DeviceChoice::kCpu});
  ASSERT_TRUE(cpu.has_value());
  EXPECT_EQ(cpu->device, "cpu: asked for");
  EXPECT_FALSE(cpu->is_on_gpu || cpu->gpu.has_value());
  const auto chosen = choose_device(DeviceChoice::kCuda);
  const auto cuda = doctor({.num_threads = 1, .device = DeviceChoice::kCuda});
  ASSERT_EQ(cuda.has_value(), chosen.has_value());
  if (!cuda) {
    EXPECT_EQ(cuda.error().code(), Code::kUnsupported);
    EXPECT_EQ(cuda.error().message(), chosen.error().message());
  }
}

TEST(Doctor, TheTighterOfBandwidthAndArithmeticSetsTheSpeed) {
  DoctorModel model;
  model.token = {.expert_bytes = 50, .attention_bytes = 30, .head_bytes = 20, .flops = 400};
  predict(model, 1000.0, 40000.0);
  EXPECT_DOUBLE_EQ(model.tokens_per_second, 10.0);
  EXPECT_EQ(model.limit, "memory bandwidth");
  predict(model, 1000.0, 800.0);
  EXPECT_DOUBLE_EQ(model.tokens_per_second, 2.0);
  EXPECT_EQ(model.limit, "arithmetic");
  predict(model, 1000.0, 0.0);  // nothing known
  EXPECT_EQ(model.limit, "memory bandwidth");
}

TEST(Doctor, MeasuresThisMachineAndPricesACheckpoint) {
  const Result<DoctorReport> report =
      doctor({.model = NIBBLE_SOURCE_DIR "/models/demo", .num_threads = 2});
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_EQ(report->rates.num_threads, 2);
  EXPECT_GT(report->rates.read.one_core, 1e7);
  EXPECT_GT(report->rates.read.all_cores, 1e7);
  EXPECT_EQ(report->rates.f32_isa.empty(), report->rates.f32.one_core == 0.0);
  ASSERT_TRUE(report->model.has_value());
  EXPECT_TRUE(report->model->fits);
  EXPECT_GT(report->model->weight_bytes, 19'000'000);
  EXPECT_GT(report->model->tokens_per_second, 1.0);
  EXPECT_FALSE(report->capabilities.items.empty());
}

TEST(Doctor, PublishedShapesNeedNoFiles) {
  const Result<DoctorReport> report = doctor({.model = "gpt-oss-20b", .max_model_len = 4096});
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_NEAR(gigabytes(report->model->weight_bytes), 13.76, 0.01);
  EXPECT_EQ(report->model->max_model_len, 4096);
}

TEST(Doctor, AMissingModelIsNamed) {
  const Result<DoctorReport> report = doctor({.model = "/no/such/folder"});
  ASSERT_FALSE(report.has_value());
  EXPECT_THAT(report.error().message(), HasSubstr("/no/such/folder"));
}

}  // namespace
}  // namespace nibble::commands
