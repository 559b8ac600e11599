// The command line on an engine that records what it is asked and answers as told.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/app.h"
#include "cli/host.h"

namespace nibble::cli {

struct FakeEngine {
  // What it answers.
  Status load_status;
  Status generate_status;
  Status score_status;
  std::vector<Delta> deltas;
  Response response;
  ScoreResult score_result;
  std::vector<std::vector<float>> logits;
  EngineInfo info{.model = "/models/fake", .vocab_size = 3, .has_tokenizer = true};
  commands::InspectReport report;
  commands::MakeModelPlan plan;
  Status make_status;
  Result<commands::PlanReport> launch_plans = commands::PlanReport{};
  Capabilities capabilities;
  Result<commands::DoctorReport> diagnosis = commands::DoctorReport{};
  Status conversion_status;
  commands::QuantizeReport conversion;
  std::vector<commands::BenchRow> bench_rows;
  Status bench_status;
  Status device_status;  // of what was asked of the hardware
  server::ServeOutcome serve_outcome;
  server::BatchOutcome batch_outcome;
  std::vector<server::BatchProgress> batch_steps;  // told before the end

  // What it was asked.
  std::vector<server::ServeOptions> served;
  std::vector<server::BatchOptions> batched;
  std::vector<EngineOptions> loads;
  std::vector<Request> requests;
  std::vector<ScoreRequest> scores;
  std::vector<std::pair<std::string, bool>> encoded;
  std::vector<commands::MakeModelOptions> made;
  std::vector<commands::PlanOptions> planned;
  std::vector<commands::DoctorOptions> diagnosed;
  std::vector<commands::QuantizeOptions> quantised;
  std::vector<commands::BenchOptions> benched;
  int deltas_taken = 0;
};

class FakeSession : public Session {
 public:
  explicit FakeSession(FakeEngine& engine) : engine_(engine) {}

  const EngineInfo& info() const override { return engine_.info; }
  Result<Response> generate(const Request& request,
                            const std::function<bool(const Delta&)>& on_delta) override {
    engine_.requests.push_back(request);
    if (!engine_.generate_status.ok()) {
      return engine_.generate_status;
    }
    Response response = engine_.response;
    for (const Delta& delta : engine_.deltas) {
      ++engine_.deltas_taken;
      if (!on_delta(delta)) {
        response.finish_reason = FinishReason::kCancelled;
        break;
      }
    }
    return response;
  }
  Result<ScoreResult> score(const ScoreRequest& request) override {
    engine_.scores.push_back(request);
    if (!engine_.score_status.ok()) {
      return engine_.score_status;
    }
    for (std::size_t i = 0; request.on_logits && i < engine_.logits.size(); ++i) {
      request.on_logits(static_cast<std::int32_t>(i), engine_.logits[i]);
    }
    return engine_.score_result;
  }
  // One token for each byte.
  Result<std::vector<std::int32_t>> encode(const std::string& text,
                                           bool with_special) const override {
    engine_.encoded.emplace_back(text, with_special);
    return std::vector<std::int32_t>(text.begin(), text.end());
  }
  Result<std::string> decode(const std::vector<std::int32_t>& ids) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      text += static_cast<char>(id);
    }
    return text;
  }

 private:
  FakeEngine& engine_;
};

// Lines that a person would type; the end of input after them.
class FakeLines : public LineReader {
 public:
  explicit FakeLines(std::vector<std::string> lines) : lines_(std::move(lines)) {}
  Event read(const std::string& /*prompt*/, std::string& line) override {
    if (next_ == lines_.size()) {
      return Event::kEnd;
    }
    line = lines_[next_++];
    return line == "^C" ? Event::kInterrupted : Event::kLine;
  }

 private:
  std::vector<std::string> lines_;
  std::size_t next_ = 0;
};

struct Ran {
  int exit_code = 0;
  std::string out;
  std::string err;
};

// One test's world: an empty model folder, a fake engine, no NIBBLE_ variable.
class World {
 public:
  World() {
    std::string pattern = std::filesystem::temp_directory_path() / "nibble_cli_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    setenv("NIBBLE_DEMO", folder_.c_str(), 1);
  }
  ~World() {
    for (const std::string& name : variables_) {
      unsetenv(name.c_str());
    }
    unsetenv("NIBBLE_DEMO");
    std::filesystem::remove_all(folder_);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void set_variable(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    variables_.push_back(name);
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  const std::string& folder() const { return folder_; }

  Ran run(std::vector<std::string> arguments) {
    std::FILE* in = file_with(input);
    std::FILE* out = std::tmpfile();
    std::FILE* err = std::tmpfile();
    Host host{.backend = backend(),
              .in = in,
              .in_is_terminal = in_is_terminal,
              .out = Output(out, out_is_terminal),
              .err = err,
              .executable = "/nowhere/bin/nibble",
              .today = "2026-11-30",
              .make_line_reader = [this](const std::string& history) {
                history_file = history;
                return std::make_unique<FakeLines>(lines);
              }};
    Ran ran;
    ran.exit_code = run_program(std::move(arguments), host);
    ran.out = contents(out);
    ran.err = contents(err);
    std::fclose(in);
    return ran;
  }

  Backend backend() {
    return {
        .load = [this](const EngineOptions& options) -> Result<std::unique_ptr<Session>> {
          engine.loads.push_back(options);
          if (!engine.load_status.ok()) {
            return engine.load_status;
          }
          return std::unique_ptr<Session>(std::make_unique<FakeSession>(engine));
        },
        .inspect = [this](const std::string&) -> Result<commands::InspectReport> {
          return engine.report;
        },
        .preset_names =
            [] {
              return std::vector<std::string>{"tiny", "gpt-oss-20b"};
            },
        .plan_model =
            [this](const commands::MakeModelOptions& options) -> Result<commands::MakeModelPlan> {
          engine.made.push_back(options);
          return engine.plan;
        },
        .make_model =
            [this](const commands::MakeModelOptions& options,
                   const std::function<bool(std::int64_t, std::int64_t)>& progress) {
              engine.made.push_back(options);
              for (std::int64_t done = 0; done <= 100; ++done) {
                progress(done * 1'000'000, 100'000'000);
              }
              return engine.make_status;
            },
        .plan =
            [this](const commands::PlanOptions& options) {
              engine.planned.push_back(options);
              return engine.launch_plans;
            },
        .doctor =
            [this](const commands::DoctorOptions& options) {
              engine.diagnosed.push_back(options);
              return engine.diagnosis;
            },
        .check_device = [this](DeviceChoice, bool) { return engine.device_status; },
        .quantize =
            [this](const commands::QuantizeOptions& options,
                   const commands::QuantizeProgress& progress) -> Result<commands::QuantizeReport> {
          engine.quantised.push_back(options);
          for (std::int64_t done = 0; done <= 100; ++done) {
            EXPECT_TRUE(progress(done * 1'000'000, 100'000'000));
          }
          if (!engine.conversion_status.ok()) {
            return engine.conversion_status;
          }
          return engine.conversion;
        },
        .capabilities = [this] { return engine.capabilities; },
        .bench =
            [this](const commands::BenchOptions& options,
                   const std::function<bool(const commands::BenchRow&)>& on_row) {
              engine.benched.push_back(options);
              for (const commands::BenchRow& row : engine.bench_rows) {
                EXPECT_TRUE(on_row(row));
              }
              return engine.bench_status;
            },
        .serve =
            [this](const server::ServeOptions& options, std::FILE*) {
              engine.served.push_back(options);
              return engine.serve_outcome;
            },
        .batch =
            [this](const server::BatchOptions& options,
                   const std::function<void(const server::BatchProgress&)>& on_progress) {
              engine.batched.push_back(options);
              for (const server::BatchProgress& step : engine.batch_steps) {
                on_progress(step);
              }
              return engine.batch_outcome;
            }};
  }

  FakeEngine engine;
  std::string input;  // standard input
  bool in_is_terminal = false;
  bool out_is_terminal = false;
  std::vector<std::string> lines;  // of the chat
  std::string history_file;        // that the chat was given

 private:
  static std::FILE* file_with(const std::string& text) {
    std::FILE* file = std::tmpfile();
    std::fwrite(text.data(), 1, text.size(), file);
    std::rewind(file);
    return file;
  }
  static std::string contents(std::FILE* file) {
    std::rewind(file);
    std::string text;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
      text += static_cast<char>(c);
    }
    std::fclose(file);
    return text;
  }

  std::string folder_;
  std::vector<std::string> variables_;
};

inline Delta content(const std::string& text) {
  return {.kind = Delta::Kind::kContent, .text = text};
}
inline Delta reasoning(const std::string& text) {
  return {.kind = Delta::Kind::kReasoning, .text = text};
}

}  // namespace nibble::cli
