#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "unit/cli/fake_host.h"

namespace nibble::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Doctor : public ::testing::Test {
 protected:
  Doctor() {
    commands::DoctorReport report;
    report.capabilities.can_run = true;
    report.capabilities.backend = "cpu";
    report.capabilities.explanation = "driver 550.54, CUDA 12.4: supports CUDA 12.4";
    report.capabilities.items = {{"cpu", "avx2", "a processor, 2 processors", true, ""},
                                 {"nccl", "", "", false, "libnccl.so.2 was not found"}};
    report.capabilities.kernels = {
        {"moe", "moe_cpu", "cpu", "avx512", true, true, false, "the processor lacks avx512"}};
    report.rates = {
        .num_threads = 2, .read = {14e9, 26e9}, .f32_isa = "avx2", .f32 = {50e9, 100e9}};
    world_.engine.diagnosis = report;
  }
  commands::DoctorReport& report() { return world_.engine.diagnosis.value(); }
  void give_model(bool fits) {
    report().model = commands::DoctorModel{.name = "gpt-oss-120b",
                                           .token = {.expert_bytes = 1'900'000'000},
                                           .weight_bytes = 65'000'000'000,
                                           .available_bytes = 24'000'000'000,
                                           .fits = fits,
                                           .refusal = fits ? "" : "want 62 GiB, found 22",
                                           .max_model_len = 4096,
                                           .cache_bytes = 1'000'000'000,
                                           .tokens_per_second = 13.7,
                                           .limit = "memory bandwidth"};
  }
  World world_;
};

TEST_F(Doctor, PrintsWhatIsThereWhatIsNotAndWhy) {
  const Ran ran = world_.run({"doctor"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.err, IsEmpty());
  EXPECT_THAT(ran.out, AllOf(HasSubstr("libnccl.so.2 was not found"),
                             HasSubstr("the processor lacks avx512"), HasSubstr("26.0 GB/s"),
                             HasSubstr("100.0 GFLOP/s"), HasSubstr("supports CUDA 12.4")));
  ASSERT_EQ(world_.engine.diagnosed.size(), 1U);
  EXPECT_EQ(world_.engine.diagnosed[0].model, "");
}

TEST_F(Doctor, PrintsAGpusLimitsAndItsMemoryByParts) {
  give_model(true);
  report().device = "cuda: a card, 5 of 6 bytes free";
  report().is_on_gpu = true;
  report().gpu = commands::DoctorGpu{.read = 4.4e12, .bf16 = 9.3e14};
  report().model->memory = {.weight_bytes = 13'760'000'000,
                            .cache_bytes = 2'000'000'000,
                            .step_bytes = 300'000'000,
                            .reserve_bytes = 500'000'000};
  const Ran ran = world_.run({"doctor", "gpt-oss-20b", "--device", "cuda", "--kv-cache-dtype",
                              "fp8", "--max-num-seqs", "64", "--max-num-batched-tokens", "8192"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("4400.0 GB/s"), HasSubstr("930000.0 GFLOP/s"),
                             HasSubstr("a model is computed on cuda: a card, 5 of 6 bytes free"),
                             HasSubstr("activations and logits")));
  const commands::DoctorOptions& asked = world_.engine.diagnosed.at(0);
  EXPECT_EQ(asked.device, DeviceChoice::kCuda);
  EXPECT_EQ(asked.kv_cache, KvCacheType::kFp8);
  EXPECT_EQ(asked.max_num_seqs, 64);
  EXPECT_EQ(asked.max_batch_tokens, 8192);
  const auto json = nlohmann::json::parse(world_.run({"doctor", "gpt-oss-20b", "--json"}).out);
  EXPECT_EQ(json["model"]["memory"]["step"], 300'000'000);
  EXPECT_EQ(json["model"]["memory"]["total"], 16'560'000'000);
  EXPECT_EQ(json["gpu_rates"]["read_bytes_per_s"], 4.4e12);
  EXPECT_EQ(json["device"], "cuda: a card, 5 of 6 bytes free");
}

TEST_F(Doctor, ADeviceThatIsNotThereIsFive) {
  world_.engine.diagnosis = Status(Code::kUnsupported, "no GPU");
  world_.engine.device_status = Status(Code::kUnsupported, "no GPU");
  EXPECT_EQ(world_.run({"doctor", "--device", "cuda"}).exit_code, 5);
  world_.engine.device_status = {};
  EXPECT_EQ(world_.run({"doctor", "--device", "cuda"}).exit_code, 3) << "the model's fault";
}

TEST_F(Doctor, ExitsWithFiveWhenNothingCanRun) {
  report().capabilities.can_run = false;
  report().capabilities.explanation = "kernel family moe has no kernel that runs here";
  const Ran ran = world_.run({"doctor"});
  EXPECT_EQ(ran.exit_code, 5);
  EXPECT_EQ(ran.err, "nibble doctor: kernel family moe has no kernel that runs here\n");
  EXPECT_THAT(ran.out, HasSubstr("nothing can run"));
}

TEST_F(Doctor, ExitsWithFourAndTheNumbersWhenTheModelDoesNotFit) {
  give_model(false);
  const Ran ran = world_.run({"doctor", "gpt-oss-20b", "--max-model-len", "4096"});
  EXPECT_EQ(ran.exit_code, 4);
  EXPECT_THAT(ran.err, HasSubstr("gpt-oss-120b: want 62 GiB, found 22"));
  EXPECT_THAT(ran.out, HasSubstr("does not fit"));
  EXPECT_EQ(world_.engine.diagnosed[0].model, "gpt-oss-20b");
  EXPECT_EQ(world_.engine.diagnosed[0].max_model_len, 4096);
}

TEST_F(Doctor, PredictsTheSpeedOfAModelThatFits) {
  give_model(true);
  const Ran ran = world_.run({"doctor", world_.folder()});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("at most 13.7 tokens/s, set by memory bandwidth"));
  EXPECT_EQ(world_.engine.diagnosed[0].model, world_.folder());
}

TEST_F(Doctor, AMissingModelIsExitThree) {
  const Ran ran = world_.run({"doctor", "/no/such/model"});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_TRUE(world_.engine.diagnosed.empty());
}

TEST_F(Doctor, JsonHasEverything) {
  give_model(true);
  const Ran ran = world_.run({"doctor", "gpt-oss-20b", "--json"});
  EXPECT_EQ(ran.exit_code, 0);
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["can_run"], true);
  EXPECT_EQ(json["backend"], "cpu");
  EXPECT_EQ(json["items"][1]["name"], "nccl");
  EXPECT_EQ(json["items"][1]["usable"], false);
  EXPECT_EQ(json["items"][1]["reason"], "libnccl.so.2 was not found");
  EXPECT_EQ(json["kernels"][0]["runnable"], false);
  EXPECT_EQ(json["kernels"][0]["needs"], "avx512");
  EXPECT_EQ(json["rates"]["read_bytes_per_s"]["all_cores"], 26e9);
  EXPECT_EQ(json["model"]["fits"], true);
  EXPECT_EQ(json["model"]["tokens_per_second"], 13.7);
}

}  // namespace
}  // namespace nibble::cli
