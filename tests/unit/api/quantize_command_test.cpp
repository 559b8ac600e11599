#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/commands/expert_form.h"
#include "api/commands/quantize.h"
#include "formats/bf16.h"
#include "kernels/quantize/quantize.h"
#include "model/config.h"
#include "weights/checkpoint.h"

namespace nibble::commands {
namespace {

namespace fs = std::filesystem;
using formats::Bf16;
using testing::HasSubstr;

const std::string kGolden = std::string(NIBBLE_SOURCE_DIR) + "/tests/golden/";
const std::string kDemo = std::string(NIBBLE_SOURCE_DIR) + "/models/demo";

class QuantizeCommand : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(testing::TempDir()) /
            (std::string("nibble_") + info->name() + "_" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string folder(const std::string& name) const { return (root_ / name).string(); }

  QuantizeOptions options(const std::string& source, const std::string& name,
                          const std::string& format) const {
    QuantizeOptions out;
    out.source = source;
    out.destination = folder(name);
    out.format = format;
    out.num_threads = 2;
    out.max_shard_bytes = 1 << 18;  // several shards
    return out;
  }

  // Runs and expects success.
  QuantizeReport convert(const QuantizeOptions& options) const {
    const Result<QuantizeReport> report = quantize(options, {});
    EXPECT_TRUE(report.has_value()) << report.error().message();
    return report.has_value() ? *report : QuantizeReport{};
  }

  fs::path root_;
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// All files of a folder by name.
std::map<std::string, std::string> read_folder(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_file(entry.path());
  }
  return files;
}

std::vector<Bf16> dequantised(const weights::Checkpoint& source, const ExpertStack& stack,
                              ExpertFormat form) {
  std::vector<Bf16> out(stack.num_experts * stack.rows * stack.cols);
  const std::vector<weights::TensorSpec> names = model::stack_tensors(stack, form);
  const auto bytes = [&](std::size_t part) {
    return static_cast<const std::uint8_t*>(source.find(names.at(part).name)->view.data);
  };
  if (form == ExpertFormat::kBf16Transposed) {
    std::memcpy(out.data(), bytes(0), out.size() * sizeof(Bf16));
    return out;
  }
  kernels::DequantizeArgs args;
  args.values = bytes(0);
  args.scales = bytes(1);
  args.out = out.data();
  args.num_experts = static_cast<std::int32_t>(stack.num_experts);
  args.rows = static_cast<std::int32_t>(stack.rows);
  args.cols = static_cast<std::int32_t>(stack.cols);
  args.options.order = kernels::MatrixOrder::kColumnMajor;  // the transposed form of bf16 files
  if (form == ExpertFormat::kNvfp4) {
    args.global_scales = reinterpret_cast<const float*>(bytes(2));
    args.options.format = kernels::QuantFormat::kNvfp4;
    args.options.has_global_scale_per_expert = true;
  }
  EXPECT_TRUE(kernels::dequantize(args, {}).ok());
  return out;
}

// Same expert values, whatever their forms; every other tensor the same bytes.
void expect_same_model(const std::string& left, const std::string& right) {
  const model::ModelConfig config = model::load_config(left).value();
  const weights::Checkpoint a = weights::Checkpoint::open(left).value();
  const weights::Checkpoint b = weights::Checkpoint::open(right).value();
  const ExpertFormat a_form = model::detect_expert_format(config, a).value();
  const ExpertFormat b_form = model::detect_expert_format(config, b).value();
  EXPECT_TRUE(weights::match(model::tensor_list(config, b_form), b).ok());
  for (const ExpertStack& stack : expert_stacks(config)) {
    ASSERT_EQ(dequantised(a, stack, a_form), dequantised(b, stack, b_form)) << stack.stem;
  }
  int num_shared = 0;
  for (const auto& [name, tensor] : a.tensors()) {
    const weights::Checkpoint::Tensor* other = b.find(name);
    if (other != nullptr && a_form != b_form) {
      ASSERT_EQ(tensor.view.bytes(), other->view.bytes()) << name;
      ASSERT_EQ(std::memcmp(tensor.view.data, other->view.data, tensor.view.bytes()), 0) << name;
      ++num_shared;
    }
  }
  EXPECT_TRUE(a_form == b_form || num_shared > 10);
}

TEST_F(QuantizeCommand, Bf16ExpertsEqualTheReferenceSpelling) {
  const QuantizeReport report = convert(options(kGolden + "tiny", "out", "bf16"));
  EXPECT_EQ(report.from, "mxfp4");
  EXPECT_EQ(report.tensors.size(), 8U);
  for (const QuantizeTensor& row : report.tensors) {
    EXPECT_EQ(row.max_abs_error, 0.0) << row.name;
    EXPECT_GT(row.rms_value, 0.0);
  }
  // tiny-bf16 was written by save_pretrained: the transposed form, byte for byte.
  expect_same_model(kGolden + "tiny-bf16", folder("out"));
  EXPECT_EQ(read_file(fs::path(folder("out")) / "config.json").find("quantization_config"),
            std::string::npos);
}

TEST_F(QuantizeCommand, Bf16ToMxfp4GivesTheOriginalValuesUnderEveryRule) {
  for (const std::string rule : {"up", "least-error", "ocp"}) {
    QuantizeOptions to_mxfp4 = options(kGolden + "tiny-bf16", rule, "mxfp4");
    to_mxfp4.scale_rounding = rule;
    convert(to_mxfp4);
    expect_same_model(kGolden + "tiny", folder(rule));
  }
}

TEST_F(QuantizeCommand, DemoSurvivesBf16AndNvfp4BitForBit) {
  convert(options(kDemo, "bf16", "bf16"));
  convert(options(folder("bf16"), "mxfp4", "mxfp4"));
  expect_same_model(kDemo, folder("mxfp4"));
  const QuantizeReport nvfp4 = convert(options(folder("bf16"), "nvfp4", "nvfp4"));
  for (const QuantizeTensor& row : nvfp4.tensors) {
    EXPECT_EQ(row.max_abs_error, 0.0) << row.name;
  }
  expect_same_model(kDemo, folder("nvfp4"));
  convert(options(folder("nvfp4"), "back", "mxfp4"));
  expect_same_model(kDemo, folder("back"));
  EXPECT_TRUE(model::load_config(folder("back")).value().has_mxfp4_experts);
  EXPECT_EQ(read_file(fs::path(folder("back")) / "tokenizer.json"),
            read_file(fs::path(kDemo) / "tokenizer.json"));
}

TEST_F(QuantizeCommand, ReportsTheErrorOfRoundedWeights) {
  // Full mantissas lie off the FP4 grid: the error is there, and smaller than the weights.
  convert(options(kGolden + "tiny", "bf16", "bf16"));
  for (const auto& entry : fs::directory_iterator(folder("bf16"))) {
    if (entry.path().extension() != ".safetensors") {
      continue;
    }
    std::string bytes = read_file(entry.path());
    std::uint64_t head = 0;
    std::memcpy(&head, bytes.data(), sizeof(head));
    for (std::size_t at = 8 + head; at + 1 < bytes.size(); at += 2) {
      bytes[at] = static_cast<char>(at * 37);  // low bytes: mantissa bits only
    }
    std::ofstream(entry.path(), std::ios::binary) << bytes;
  }
  QuantizeOptions to_mxfp4 = options(folder("bf16"), "mxfp4", "mxfp4");
  to_mxfp4.scale_rounding = "up";
  for (const QuantizeTensor& row : convert(to_mxfp4).tensors) {
    EXPECT_GT(row.rms_error, 0.0);
    EXPECT_LT(row.rms_error, row.rms_value);
    EXPECT_GE(row.max_abs_error, row.rms_error);
    EXPECT_EQ(row.num_saturated, 0);
  }
}

TEST_F(QuantizeCommand, ResumesAfterEveryInterruptionToTheSameFiles) {
  convert(options(kGolden + "tiny", "whole", "nvfp4"));
  const auto want = read_folder(folder("whole"));
  const QuantizeOptions run = options(kGolden + "tiny", "parts", "nvfp4");
  int num_runs = 0;
  std::int64_t num_resumed = 0;
  for (;; ++num_runs) {
    int num_calls = 0;  // each run gets a little farther
    const Result<QuantizeReport> report = quantize(
        run, [&](std::int64_t, std::int64_t) { return ++num_calls < 12 * (num_runs + 1); });
    if (report.has_value()) {
      num_resumed = report->num_resumed;
      EXPECT_EQ(report->tensors.size(), 8U);
      break;
    }
    ASSERT_EQ(report.error().code(), Code::kCancelled) << report.error().message();
    ASSERT_THAT(report.error().message(), HasSubstr("goes on from there"));
    ASSERT_TRUE(fs::exists(folder("parts") + "/quantize.journal"));
    ASSERT_FALSE(fs::exists(folder("parts") + "/config.json"));
    ASSERT_LT(num_runs, 100);
  }
  EXPECT_GT(num_runs, 3);
  EXPECT_GT(num_resumed, 10);
  EXPECT_EQ(read_folder(folder("parts")), want);
}

TEST_F(QuantizeCommand, ResumesAfterAKillWithATornJournal) {
  convert(options(kGolden + "tiny", "whole", "bf16"));
  const QuantizeOptions run = options(kGolden + "tiny", "parts", "bf16");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // dies without destructors: nothing is flushed
    int num_calls = 0;
    (void)quantize(run, [&](std::int64_t, std::int64_t) {
      if (++num_calls == 40) {
        ::_exit(9);
      }
      return true;
    });
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 9);
  // A line cut short, as a crash of the machine may leave it.
  std::ofstream(folder("parts") + "/quantize.journal", std::ios::app) << "model.norm.weight\tcop";
  convert(run);
  EXPECT_EQ(read_folder(folder("parts")), read_folder(folder("whole")));
}

TEST_F(QuantizeCommand, ADamagedRecordIsDoneAgain) {
  convert(options(kGolden + "tiny", "whole", "nvfp4"));
  const QuantizeOptions run = options(kGolden + "tiny", "parts", "nvfp4");
  int num_calls = 0;
  ASSERT_FALSE(
      quantize(run, [&](std::int64_t, std::int64_t) { return ++num_calls < 60; }).has_value());
  std::string journal = read_file(folder("parts") + "/quantize.journal");
  const std::size_t at = journal.find("gate_up_proj\t") + std::strlen("gate_up_proj\t");
  ASSERT_LT(at, journal.size());
  journal[at] = '7';  // the largest error of that tensor, were it believed
  std::ofstream(folder("parts") + "/quantize.journal", std::ios::trunc) << journal;
  EXPECT_EQ(convert(run).tensors.front().max_abs_error, 0.0);
  EXPECT_EQ(read_folder(folder("parts")), read_folder(folder("whole")));
}

TEST_F(QuantizeCommand, RefusesToGoOnWithOtherOptions) {
  const QuantizeOptions run = options(kGolden + "tiny", "parts", "nvfp4");
  ASSERT_FALSE(quantize(run, [](std::int64_t, std::int64_t) { return false; }).has_value());
  QuantizeOptions other = run;
  other.scale_rounding = "up";
  const Status refused = quantize(other, {}).error();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("unfinished run"));
  EXPECT_TRUE(quantize(run, {}).has_value());
}

TEST_F(QuantizeCommand, RefusesWhatItCannotDoInOneLine) {
  fs::create_directories(folder("full"));
  std::ofstream(folder("full") + "/notes.txt") << "mine";
  struct Refusal {
    QuantizeOptions options;
    Code code;
    const char* message;
  };
  QuantizeOptions bad_rule = options(kGolden + "tiny", "a", "nvfp4");
  bad_rule.scale_rounding = "ocp";
  QuantizeOptions onto_itself = options(kGolden + "tiny", "a", "bf16");
  onto_itself.destination = kGolden + "tiny/../tiny";
  const Refusal refusals[] = {
      {options(kGolden + "tiny", "a", "int4"), Code::kInvalidArgument, "found \"int4\""},
      {bad_rule, Code::kInvalidArgument, "want least-error, up or nearest, found \"ocp\""},
      {onto_itself, Code::kInvalidArgument, "want another folder than the source"},
      {options(kGolden + "tiny", "a", "mxfp4"), Code::kUnsupported, "another form than mxfp4"},
      {options(kGolden + "tiny-bf16", "a", "bf16"), Code::kUnsupported, "another form than bf16"},
      {options(kGolden + "tiny-original", "a", "bf16"), Code::kUnsupported, "OpenAI"},
      {options(kGolden + "tiny", "full", "bf16"), Code::kInvalidArgument, "files and no journal"},
      {options(folder("nowhere"), "a", "bf16"), Code::kNotFound, "nowhere"},
  };
  for (const Refusal& refusal : refusals) {
    const Result<QuantizeReport> report = quantize(refusal.options, {});
    ASSERT_FALSE(report.has_value()) << refusal.message;
    EXPECT_EQ(report.error().code(), refusal.code) << report.error().message();
    EXPECT_THAT(report.error().message(), HasSubstr(refusal.message));
    EXPECT_EQ(report.error().message().find('\n'), std::string::npos);
    EXPECT_FALSE(fs::exists(folder("a")));
  }
}

// Scales stored as F8_E8M0 are the same bytes as U8 ones: exponents, never numbers.
TEST_F(QuantizeCommand, ScalesAsU8AndAsE8m0GiveTheSameValues) {
  fs::create_directories(folder("e8m0"));
  fs::copy(kGolden + "tiny/config.json", folder("e8m0"));
  const std::string bytes = read_file(kGolden + "tiny/model.safetensors");
  std::uint64_t head = 0;
  std::memcpy(&head, bytes.data(), sizeof(head));
  auto header = nlohmann::ordered_json::parse(bytes.substr(8, head));
  int num_scales = 0;
  for (auto& [name, entry] : header.items()) {
    if (name.ends_with("_scales")) {
      entry["dtype"] = "F8_E8M0";
      ++num_scales;
    }
  }
  ASSERT_EQ(num_scales, 8);
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t new_head = text.size();
  std::ofstream out(folder("e8m0") + "/model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&new_head), sizeof(new_head));
  out << text << bytes.substr(8 + head);
  out.close();
  convert(options(folder("e8m0"), "bf16", "bf16"));
  expect_same_model(kGolden + "tiny-bf16", folder("bf16"));
}

TEST_F(QuantizeCommand, RefusesNonFiniteWeightsByName) {
  convert(options(kGolden + "tiny", "bf16", "bf16"));
  const weights::Checkpoint source = weights::Checkpoint::open(folder("bf16")).value();
  const auto* tensor = source.find("model.layers.2.mlp.experts.down_proj");
  ASSERT_NE(tensor, nullptr);
  const std::string path = tensor->file->file().path();
  const auto offset =
      static_cast<const std::byte*>(tensor->view.data) - tensor->file->file().bytes().data();
  {
    // [experts, in 64, out 96]: expert 1, in 2, out 5 is row 5, column 2.
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offset + std::int64_t{2} * (64 * 96 + 2 * 96 + 5));
    const std::uint16_t nan = 0x7FC0;
    file.write(reinterpret_cast<const char*>(&nan), sizeof(nan));
  }
  const Result<QuantizeReport> report = quantize(options(folder("bf16"), "a", "mxfp4"), {});
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), Code::kCorrupt);
  EXPECT_THAT(
      report.error().message(),
      HasSubstr("model.layers.2.mlp.experts.down_proj, expert 1: want finite weights, found "
                "1 NaN or Inf, the first at [5, 2]"));
  EXPECT_FALSE(fs::exists(folder("a") + "/config.json"));
}

}  // namespace
}  // namespace nibble::commands
