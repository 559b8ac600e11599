#include "nibble/engine.h"

#include <cmath>
#include <limits>
#include <utility>

#include "api/generation.h"
#include "api/prompt_scores.h"
#include "api/text_model.h"
#include "base/error.h"

namespace nibble {

struct Engine::Impl {
  TextModel model;
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

const EngineInfo& Engine::info() const { return impl_->model.info; }

Result<Engine> Engine::load(const EngineOptions& options) {
  NIBBLE_ASSIGN_OR_RETURN(TextModel model, TextModel::load(options));
  return Engine(std::make_unique<Impl>(Impl{std::move(model)}));
}

Result<Response> Engine::generate(const Request& request, const DeltaCallback& on_delta) {
  const auto begin = Generation::Clock::now();
  engine::TokenEngine& engine = *impl_->model.engine;
  NIBBLE_ASSIGN_OR_RETURN(PreparedRequest prepared, impl_->model.prepare(request));
  Generation generation(request, prepared, on_delta, begin);
  NIBBLE_ASSIGN_OR_RETURN(const engine::SequenceId id, engine.add(std::move(prepared.tokens)));
  generation.start(Generation::Clock::now());
  std::vector<engine::TokenEvent> events;
  for (bool is_running = true; is_running;) {
    events.clear();
    engine.step(events);
    for (const engine::TokenEvent& event : events) {
      is_running = generation.push(event, Generation::Clock::now());
    }
  }
  engine.cancel(id);
  return generation.finish(false, engine.model());
}

Result<ScoreResult> Engine::score(const ScoreRequest& request) {
  PromptScores scores(request.ids, request.top);
  engine::TokenRequest tokens{.prompt = request.ids};
  tokens.on_prompt_logits = [&](std::int32_t position, std::span<const float> logits) {
    if (request.on_logits) {
      request.on_logits(position, logits);
    }
    scores.take(position, logits);
  };
  NIBBLE_ASSIGN_OR_RETURN(const engine::SequenceId id, impl_->model.engine->add(std::move(tokens)));
  std::vector<engine::TokenEvent> events;
  while (events.empty()) {
    impl_->model.engine->step(events);
  }
  impl_->model.engine->cancel(id);
  if (events[0].finish == engine::Finish::kFailed) {
    return events[0].failure;
  }
  ScoreResult result;
  NIBBLE_ASSIGN_OR_RETURN(result.tokens, scores.finish());
  double sum = 0.0;
  for (std::size_t i = 1; i < result.tokens.size(); ++i) {
    sum += result.tokens[i].logprob;
  }
  const std::size_t count = result.tokens.size();
  result.perplexity = count < 2 ? std::numeric_limits<double>::quiet_NaN()
                                : std::exp(-sum / static_cast<double>(count - 1));
  return result;
}

Result<std::vector<std::int32_t>> Engine::encode(const std::string& text, bool with_special) const {
  return impl_->model.encode(text, with_special);
}

Result<std::string> Engine::decode(const std::vector<std::int32_t>& ids) const {
  return impl_->model.decode(ids);
}

Result<std::vector<std::int32_t>> Engine::prompt_ids(const Request& request) const {
  return impl_->model.prompt_ids(request);
}

}  // namespace nibble
