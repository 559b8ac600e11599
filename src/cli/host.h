// What the verbs use of the world outside the command line. Tests replace all of it.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/commands/bench.h"
#include "api/commands/doctor.h"
#include "api/commands/inspect.h"
#include "api/commands/make_model.h"
#include "api/commands/plan.h"
#include "api/commands/quantize.h"
#include "api/commands/verify.h"
#include "cli/line_editor.h"
#include "cli/output.h"
#include "nibble/capabilities.h"
#include "nibble/engine.h"
#include "server/batch.h"
#include "server/serve.h"

namespace nibble::cli {

// A loaded model; each function is that of nibble::Engine.
class Session {
 public:
  virtual ~Session() = default;
  virtual const EngineInfo& info() const = 0;
  virtual Result<Response> generate(const Request& request,
                                    const std::function<bool(const Delta&)>& on_delta) = 0;
  virtual Result<ScoreResult> score(const ScoreRequest& request) = 0;
  virtual Result<std::vector<std::int32_t>> encode(const std::string& text,
                                                   bool with_special) const = 0;
  virtual Result<std::string> decode(const std::vector<std::int32_t>& ids) const = 0;
};

struct Backend {
  std::function<Result<std::unique_ptr<Session>>(const EngineOptions&)> load;
  std::function<Result<commands::InspectReport>(const std::string&)> inspect;
  std::function<std::vector<std::string>()> preset_names;
  std::function<Result<commands::MakeModelPlan>(const commands::MakeModelOptions&)> plan_model;
  std::function<Status(const commands::MakeModelOptions&,
                       const std::function<bool(std::int64_t, std::int64_t)>&)>
      make_model;
  std::function<Result<commands::PlanReport>(const commands::PlanOptions&)> plan;
  std::function<Result<commands::DoctorReport>(const commands::DoctorOptions&)> doctor;
  std::function<Status(DeviceChoice, bool is_deterministic)> check_device;
  std::function<Result<commands::QuantizeReport>(const commands::QuantizeOptions&,
                                                 const commands::QuantizeProgress&)>
      quantize;
  std::function<Result<commands::VerifyReport>(
      const commands::VerifyOptions&, const std::function<void(std::int32_t, std::int32_t)>&)>
      verify;
  std::function<Capabilities()> capabilities;
  std::function<Status(const commands::BenchOptions&,
                       const std::function<bool(const commands::BenchRow&)>&)>
      bench;
  std::function<server::ServeOutcome(const server::ServeOptions&, std::FILE* log)> serve;
  std::function<server::BatchOutcome(const server::BatchOptions&,
                                     const std::function<void(const server::BatchProgress&)>&)>
      batch;
};

// The real one: nibble::Engine, api/commands and the server.
Backend engine_backend();

struct Host {
  Backend backend;
  std::FILE* in = nullptr;
  bool in_is_terminal = false;
  Output out;
  std::FILE* err = nullptr;
  bool err_is_terminal = false;
  std::string executable;  // path of this program; the demo checkpoint is found from it
  std::string today;       // YYYY-MM-DD
  // The line editor of the chat; `history` is a file or empty.
  std::function<std::unique_ptr<LineReader>(const std::string& history)> make_line_reader;
};

}  // namespace nibble::cli
