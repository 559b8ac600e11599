// A loaded model with its tokenizer and defaults: what one request needs before and after the
// engine. Everything but `engine` may be used by any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/answer.h"
#include "api/constraints.h"
#include "api/prompt_scores.h"
#include "engine/token_engine.h"
#include "model/config.h"
#include "nibble/engine.h"
#include "nibble/request.h"
#include "text/tokenizer.h"

namespace nibble {

// A request that was checked: what the engine computes, and how its tokens are read.
struct PreparedRequest {
  engine::TokenRequest tokens;
  AnswerFormat format;
  std::shared_ptr<PromptScores> scores;  // filled while `tokens` are computed; null: not wanted
};

struct TextModel {
  EngineInfo info;
  model::GenerationDefaults defaults;
  std::optional<text::Tokenizer> tokenizer;
  std::unique_ptr<Constraints> constraints;     // null without a tokenizer
  std::unique_ptr<engine::TokenEngine> engine;  // of one thread, apart from its `check`

  // As Engine::load.
  static Result<TextModel> load(const EngineOptions& options);

  // kUnsupported when there is none.
  Result<const text::Tokenizer*> need_tokenizer() const;
  Result<std::vector<std::int32_t>> prompt_ids(const Request& request) const;
  // Every refusal that a request can meet comes from here; the engine then takes what it is given.
  Result<PreparedRequest> prepare(const Request& request) const;
  // `count`, at least 1, answers to one prompt, which is read once: as `prepare` makes them of
  // `choices_of`, the prompt's log-probabilities with the first alone.
  Result<std::vector<PreparedRequest>> prepare(const Request& request, std::size_t count) const;
  Result<std::vector<std::int32_t>> encode(const std::string& text, bool with_special) const;
  Result<std::string> decode(const std::vector<std::int32_t>& ids) const;

 private:
  std::vector<std::int32_t> stop_ids(const Request& request) const;
  Result<AnswerFormat> answer_format(const Request& request) const;
  Result<engine::TokenRequest> token_request(const Request& request) const;
  Result<std::optional<ConstraintRules>> rules_of(const Request& request) const;
  Status constrain(const ConstraintRules& rules, engine::TokenRequest& tokens) const;
  Status check_lengths(const Request& request, std::size_t num_prompt) const;
};

}  // namespace nibble
