#include <memory>
#include <utility>

#include "api/commands/check_device.h"
#include "cli/host.h"

namespace nibble::cli {
namespace {

class EngineSession : public Session {
 public:
  explicit EngineSession(Engine engine) : engine_(std::move(engine)) {}

  const EngineInfo& info() const override { return engine_.info(); }
  Result<Response> generate(const Request& request,
                            const std::function<bool(const Delta&)>& on_delta) override {
    return engine_.generate(request, on_delta);
  }
  Result<ScoreResult> score(const ScoreRequest& request) override { return engine_.score(request); }
  Result<std::vector<std::int32_t>> encode(const std::string& text,
                                           bool with_special) const override {
    return engine_.encode(text, with_special);
  }
  Result<std::string> decode(const std::vector<std::int32_t>& ids) const override {
    return engine_.decode(ids);
  }

 private:
  Engine engine_;
};

Result<std::unique_ptr<Session>> load(const EngineOptions& options) {
  Result<Engine> engine = Engine::load(options);
  if (!engine) {
    return engine.error();
  }
  return std::unique_ptr<Session>(std::make_unique<EngineSession>(std::move(*engine)));
}

}  // namespace

Backend engine_backend() {
  return {&load,
          &commands::inspect,
          &commands::preset_names,
          &commands::plan_model,
          &commands::make_model,
          &commands::plan,
          &commands::doctor,
          &commands::check_device,
          &commands::quantize,
          &commands::verify,
          &capabilities,
          &commands::bench,
          &server::serve,
          &server::batch};
}

}  // namespace nibble::cli
