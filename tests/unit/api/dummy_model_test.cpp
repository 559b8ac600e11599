// Random weights in place of files are the files' weights, wherever they are made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "api/commands/bench.h"
#include "api/commands/make_model.h"
#include "api/commands/verify.h"
#include "api/model_source.h"
#include "model/model_arrays.h"
#include "support/folder.h"
#include "support/host_device.h"

namespace nibble {
namespace {

using ::testing::HasSubstr;
using testing_support::HostDevice;
using testing_support::TemporaryFolder;

void make_tiny(const std::string& folder) {
  const Status status = commands::make_model({.preset = "tiny", .destination = folder}, nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
}

// Everything that a device of host memory holds of these weights.
std::vector<std::byte> device_bytes(const model::ModelWeights& weights,
                                    const model::ModelConfig& config, DType activation) {
  const std::vector<float> inv_freq(static_cast<std::size_t>(config.head_dim / 2), 0.5F);
  const model::ModelArrays host = host_arrays(weights, inv_freq.data());
  const bool has_tiles = uses_expert_tiles(host, activation);
  Arena size;
  (void)place_arrays(host, config, has_tiles, size);
  HostDevice device(1 << 30);
  ThreadPool pool(2);
  Buffer<std::byte> memory(static_cast<std::size_t>(size.bytes()));
  std::fill(memory.span().begin(), memory.span().end(), std::byte{0});
  Arena arena(memory.data());
  const model::ModelArrays placed = place_arrays(host, config, has_tiles, arena);
  Result<Uploader> uploader = Uploader::create(device, &pool);
  EXPECT_TRUE(uploader.has_value());
  Status status;
  if (weights.dummy) {
    status = make_arrays(*weights.dummy, host, placed, config, *uploader, {.pool = &pool});
  } else {
    status = upload_arrays(host, placed, config, *uploader);
    if (status.ok() && has_tiles) {
      status = upload_tiles(host, placed, config, pool, *uploader);
    }
  }
  EXPECT_TRUE(status.ok()) << status.message();
  return {memory.span().begin(), memory.span().end()};
}

TEST(DummyModel, ADeviceHoldsTheBytesOfTheFiles) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(make_tiny(folder / "m"));
  const auto source = find_source("tiny", LoadFormat::kDummy);
  ASSERT_TRUE(source.has_value()) << source.error().message();
  const auto files = model::load_weights(folder / "m", source->config);
  const auto dummy = model::make_dummy_weights(source->config, 0);
  const auto other = model::make_dummy_weights(source->config, 1);
  ASSERT_TRUE(files.has_value() && dummy.has_value() && other.has_value());
  for (const DType activation : {DType::kBF16, DType::kF32}) {
    const auto want = device_bytes(*files, source->config, activation);
    EXPECT_TRUE(device_bytes(*dummy, source->config, activation) == want);
    EXPECT_FALSE(device_bytes(*other, source->config, activation) == want);
  }
}

std::vector<std::int32_t> answer(const EngineOptions& options) {
  Result<Engine> engine = Engine::load(options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message();
  if (!engine) {
    return {};
  }
  Request request{.prompt = TokenPrompt{{5, 9, 100, 7}}, .max_tokens = 12, .ignore_eos = true};
  request.sampling.seed = 3;
  const Result<Response> response = engine->generate(request);
  EXPECT_TRUE(response.has_value()) << response.error().message();
  return response ? response->ids : std::vector<std::int32_t>();
}

TEST(DummyModel, AnswersAsTheFilesDoFromAPresetAndFromAConfigAlone) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(make_tiny(folder / "m"));
  std::filesystem::create_directories(folder / "c");
  std::filesystem::copy(folder / "m/config.json", folder / "c/config.json");
  const EngineOptions files{.model = folder / "m", .device = DeviceChoice::kCpu};
  const auto want = answer(files);
  ASSERT_EQ(want.size(), 12U);
  EngineOptions dummy = files;
  dummy.load_format = LoadFormat::kDummy;
  for (const std::string& model : {std::string("tiny"), folder / "c", folder / "m"}) {
    dummy.model = model;
    EXPECT_EQ(answer(dummy), want) << model;
  }
  dummy.use_reference_kernels = true;
  EXPECT_EQ(answer(dummy).size(), 12U);
}

TEST(DummyModel, HasNoPersistentKernelOnAProcessor) {
  const auto engine = Engine::load({.model = "tiny",
                                    .load_format = LoadFormat::kDummy,
                                    .device = DeviceChoice::kCpu,
                                    .decode_path = DecodePath::kPersistent});
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), Code::kUnsupported);
  EXPECT_EQ(engine.error().message(), "decode path persistent: want a GPU, found the processor");
}

TEST(DummyModel, IsVerifiedAndMeasuredByItsName) {
  const auto report = commands::verify({.model = "tiny",
                                        .load_format = LoadFormat::kDummy,
                                        .num_tokens = 8,
                                        .device = DeviceChoice::kCpu},
                                       [](std::int32_t, std::int32_t) {});
  ASSERT_TRUE(report.has_value()) << report.error().message();
  EXPECT_TRUE(report->is_ok);
  for (const bool is_full : {false, true}) {
    commands::BenchOptions options{.model = "tiny", .load_format = LoadFormat::kDummy};
    options.n_prompt = {8};
    options.n_gen = {};
    options.repetitions = 1;
    options.device = DeviceChoice::kCpu;
    options.is_full = is_full;
    std::vector<commands::BenchRow> rows;
    const Status status = commands::bench(options, [&](const commands::BenchRow& row) {
      rows.push_back(row);
      return true;
    });
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_EQ(rows[0].model.type, "gpt_oss mxfp4 dummy");
    const TemporaryFolder folder;
    ASSERT_NO_FATAL_FAILURE(make_tiny(folder / "m"));
    options.model = folder / "m";
    options.load_format = LoadFormat::kFiles;
    ASSERT_TRUE(commands::bench(options, [&](const commands::BenchRow& row) {
                  rows.push_back(row);
                  return true;
                }).ok());
    EXPECT_EQ(rows[0].model.n_params, rows[1].model.n_params);
    EXPECT_LT(rows[0].model.size, rows[1].model.size);  // by the headers
    EXPECT_GT(rows[0].model.size, rows[1].model.size - 100'000);
  }
}

TEST(DummyModel, RefusesWhatItCannotMakeUpOrHold) {
  EXPECT_EQ(find_source("gpt-oss-7b", LoadFormat::kDummy).error().code(), Code::kNotFound);
  EXPECT_EQ(find_source("tiny", LoadFormat::kFiles).error().code(), Code::kNotFound);
  auto source = find_source("tiny", LoadFormat::kDummy);
  ASSERT_TRUE(source.has_value());
  source->config.has_mxfp4_experts = false;
  const auto bf16 = source->load({});
  ASSERT_FALSE(bf16.has_value());
  EXPECT_EQ(bf16.error().code(), Code::kUnsupported);
  EXPECT_THAT(bf16.error().message(), HasSubstr("found bf16"));
  source->config.has_mxfp4_experts = true;
  source->config.vocab = 1 << 30;
  const auto large = source->load({});
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code(), Code::kExhausted);
  EXPECT_THAT(large.error().message(), HasSubstr("bytes of memory"));
}

}  // namespace
}  // namespace nibble
