#include "nibble/engine.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <utility>

#include "api/answer.h"
#include "api/chat_prompt.h"
#include "api/memory_fit.h"
#include "api/sampling_rules.h"
#include "base/error.h"
#include "engine/token_engine.h"
#include "tensor/machine_facts.h"
#include "text/harmony.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

// A folder without `tokenizer.json` still runs on token ids.
Result<std::optional<text::Tokenizer>> load_tokenizer(const std::string& folder,
                                                      std::int32_t vocab) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder + "/tokenizer.json", ignored)) {
    return std::optional<text::Tokenizer>();
  }
  NIBBLE_ASSIGN_OR_RETURN(text::Tokenizer tokenizer, text::Tokenizer::load(folder));
  if (tokenizer.vocab_size() > vocab) {
    return error(Code::kCorrupt,
                 "{}/tokenizer.json: want ids below {}, the model's vocabulary, found {}", folder,
                 vocab, tokenizer.vocab_size() - 1);
  }
  return std::optional<text::Tokenizer>(std::move(tokenizer));
}

std::int64_t checkpoint_bytes(const std::string& folder) {
  std::int64_t bytes = 0;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    if (entry.path().extension() == ".safetensors") {
      const auto size = entry.file_size(failed);
      bytes += failed ? 0 : static_cast<std::int64_t>(size);
    }
  }
  return bytes;
}

}  // namespace

struct Engine::Impl {
  EngineInfo info;
  model::GenerationDefaults defaults;
  std::optional<text::Tokenizer> tokenizer;
  std::unique_ptr<engine::TokenEngine> engine;

  Result<const text::Tokenizer*> need_tokenizer() const {
    if (!tokenizer.has_value()) {
      return error(Code::kUnsupported, "{}: no tokenizer.json; give token ids", info.model);
    }
    return &*tokenizer;
  }
  Result<std::vector<std::int32_t>> prompt_ids(const Request& request) const;
  Result<AnswerFormat> answer_format(const Request& request) const;
  Result<engine::TokenRequest> token_request(const Request& request) const;
  std::vector<std::int32_t> stop_ids(const Request& request) const;
  Result<Response> generate(const Request& request, const DeltaCallback& on_delta);
  Status run(engine::SequenceId id, Answer& answer, Timings& timings);
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

const EngineInfo& Engine::info() const { return impl_->info; }

Result<Engine> Engine::load(const EngineOptions& options) {
  const Clock::time_point begin = Clock::now();
  NIBBLE_ASSIGN_OR_RETURN(const model::ModelConfig config, model::load_config(options.model));
  auto impl = std::make_unique<Impl>();
  NIBBLE_ASSIGN_OR_RETURN(impl->defaults, model::load_generation_defaults(options.model, config));
  NIBBLE_ASSIGN_OR_RETURN(impl->tokenizer, load_tokenizer(options.model, config.vocab));
  MachineFacts machine;
  probe_host(machine);
  NIBBLE_ASSIGN_OR_RETURN(
      const EnginePlan plan,
      plan_engine(options, config, checkpoint_bytes(options.model), machine.available_bytes));
  NIBBLE_ASSIGN_OR_RETURN(std::unique_ptr<model::Model> model,
                          model::load_model(options.model, plan.model));
  const model::MemoryPlan memory = model->memory();
  impl->info = {.model = options.model,
                .architecture = config.architecture,
                .vocab_size = config.vocab,
                .max_model_len = plan.model.max_position,
                .num_threads = model->num_threads(),
                .has_tokenizer = impl->tokenizer.has_value(),
                .mapped_bytes = memory.mapped_bytes,
                .owned_weight_bytes = memory.owned_weight_bytes,
                .kv_bytes = memory.kv_bytes,
                .workspace_bytes = memory.workspace_bytes};
  impl->engine = std::make_unique<engine::TokenEngine>(std::move(model), plan.limits);
  impl->info.load_ms = ms_between(begin, Clock::now());
  return Engine(std::move(impl));
}

Result<std::vector<std::int32_t>> Engine::Impl::prompt_ids(const Request& request) const {
  if (const auto* ids = std::get_if<TokenPrompt>(&request.prompt)) {
    return ids->ids;
  }
  NIBBLE_ASSIGN_OR_RETURN(const text::Tokenizer* tokens, need_tokenizer());
  if (const auto* raw = std::get_if<TextPrompt>(&request.prompt)) {
    return tokens->encode(raw->text, text::SpecialTokens::kRecognise);
  }
  NIBBLE_ASSIGN_OR_RETURN(const text::HarmonyTokens control, text::HarmonyTokens::find(*tokens));
  NIBBLE_ASSIGN_OR_RETURN(const std::vector<text::Message> conversation,
                          harmony_conversation(std::get<ChatPrompt>(request.prompt)));
  return text::render(conversation, *tokens, control, text::RenderFor::kCompletion);
}

std::vector<std::int32_t> Engine::Impl::stop_ids(const Request& request) const {
  std::vector<std::int32_t> ids = request.stop_token_ids;
  if (!request.ignore_eos) {
    ids.insert(ids.end(), defaults.eos_ids.begin(), defaults.eos_ids.end());
  }
  return ids;
}

Result<AnswerFormat> Engine::Impl::answer_format(const Request& request) const {
  AnswerFormat format{.tokenizer = tokenizer.has_value() ? &*tokenizer : nullptr,
                      .hidden_ids = stop_ids(request)};
  if (std::holds_alternative<ChatPrompt>(request.prompt)) {
    NIBBLE_ASSIGN_OR_RETURN(const text::Tokenizer* tokens, need_tokenizer());
    NIBBLE_ASSIGN_OR_RETURN(format.harmony, text::HarmonyTokens::find(*tokens));
  }
  if (!request.stop.empty() && format.tokenizer == nullptr) {
    return error(Code::kUnsupported, "stop: {} strings given, but {} has no tokenizer.json",
                 request.stop.size(), info.model);
  }
  format.wants_tokens =
      request.top_logprobs >= 0 || std::holds_alternative<TokenPrompt>(request.prompt);
  return format;
}

Result<engine::TokenRequest> Engine::Impl::token_request(const Request& request) const {
  engine::TokenRequest out{.min_tokens = request.min_tokens,
                           .stop_ids = stop_ids(request),
                           .top_logprobs = request.top_logprobs};
  NIBBLE_ASSIGN_OR_RETURN(out.prompt, prompt_ids(request));
  NIBBLE_ASSIGN_OR_RETURN(out.sampling, sampling_rules(request.sampling, defaults));
  if (request.max_tokens < -1) {
    return error(Code::kInvalidArgument, "max_tokens: want -1 or more, found {}",
                 request.max_tokens);
  }
  out.max_tokens =
      request.max_tokens == -1 ? std::numeric_limits<std::int32_t>::max() : request.max_tokens;
  if (request.min_tokens < 0 || request.min_tokens > out.max_tokens) {
    return error(Code::kInvalidArgument, "min_tokens: want 0 to max_tokens, {}, found {}",
                 out.max_tokens, request.min_tokens);
  }
  if (request.top_logprobs < -1 || request.top_logprobs > info.vocab_size) {
    return error(Code::kInvalidArgument, "top_logprobs: want -1 to {}, found {}", info.vocab_size,
                 request.top_logprobs);
  }
  return out;
}

// Steps until the sequence ends.
Status Engine::Impl::run(engine::SequenceId id, Answer& answer, Timings& timings) {
  const Clock::time_point begin = Clock::now();
  std::optional<Clock::time_point> first;
  std::vector<engine::TokenEvent> events;
  for (bool is_running = true; is_running;) {
    events.clear();
    engine->step(events);
    for (const engine::TokenEvent& event : events) {
      const Clock::time_point now = Clock::now();
      timings.prefill_ms = ms_between(begin, first.value_or(now));
      timings.decode_ms = first.has_value() ? ms_between(*first, now) : 0.0;
      first = first.value_or(now);
      if (event.finish == engine::Finish::kFailed) {
        return event.failure;
      }
      is_running = answer.push(event) && event.finish == engine::Finish::kNone;
    }
  }
  engine->cancel(id);
  return {};
}

Result<Response> Engine::Impl::generate(const Request& request, const DeltaCallback& on_delta) {
  NIBBLE_ASSIGN_OR_RETURN(const AnswerFormat format, answer_format(request));
  NIBBLE_ASSIGN_OR_RETURN(engine::TokenRequest tokens, token_request(request));
  const std::uint64_t seed = tokens.sampling.seed;
  const auto num_prompt = static_cast<std::int32_t>(tokens.prompt.size());
  NIBBLE_ASSIGN_OR_RETURN(const engine::SequenceId id, engine->add(std::move(tokens)));
  Answer answer(format, request, on_delta);
  Timings timings;
  NIBBLE_RETURN_IF_ERROR(run(id, answer, timings));
  Response response = answer.finish(false);
  response.seed = seed;
  response.usage.prompt_tokens = num_prompt;
  response.timings = timings;
  return response;
}

Result<Response> Engine::generate(const Request& request, const DeltaCallback& on_delta) {
  return impl_->generate(request, on_delta);
}

Result<ScoreResult> Engine::score(const ScoreRequest& request) {
  ScoreResult result;
  Status failure;
  const auto count = request.ids.size();
  if (count > 0) {
    result.tokens.push_back(
        {.id = request.ids[0], .logprob = std::numeric_limits<float>::quiet_NaN()});
  }
  double sum = 0.0;
  engine::TokenRequest tokens{.prompt = request.ids};
  tokens.on_prompt_logits = [&](std::int32_t position, std::span<const float> logits) {
    if (request.on_logits) {
      request.on_logits(position, logits);
    }
    const auto next = static_cast<std::size_t>(position) + 1;
    if (next >= count || !failure.ok()) {
      return;
    }
    Result<engine::Logprob> logprob = engine::logprob_of(logits, request.ids[next], request.top);
    if (!logprob) {
      failure = logprob.error();
      return;
    }
    sum += logprob->logprob;
    result.tokens.push_back({request.ids[next], logprob->logprob, std::move(logprob->top)});
  };
  NIBBLE_ASSIGN_OR_RETURN(const engine::SequenceId id, impl_->engine->add(std::move(tokens)));
  std::vector<engine::TokenEvent> events;
  while (events.empty()) {
    impl_->engine->step(events);
  }
  impl_->engine->cancel(id);
  if (events[0].finish == engine::Finish::kFailed) {
    return events[0].failure;
  }
  NIBBLE_RETURN_IF_ERROR(failure);
  result.perplexity = count < 2 ? std::numeric_limits<double>::quiet_NaN()
                                : std::exp(-sum / static_cast<double>(count - 1));
  return result;
}

Result<std::vector<std::int32_t>> Engine::encode(const std::string& text, bool with_special) const {
  NIBBLE_ASSIGN_OR_RETURN(const text::Tokenizer* tokens, impl_->need_tokenizer());
  return tokens->encode(
      text, with_special ? text::SpecialTokens::kRecognise : text::SpecialTokens::kAsText);
}

Result<std::string> Engine::decode(const std::vector<std::int32_t>& ids) const {
  NIBBLE_ASSIGN_OR_RETURN(const text::Tokenizer* tokens, impl_->need_tokenizer());
  return tokens->decode(ids);
}

Result<std::vector<std::int32_t>> Engine::prompt_ids(const Request& request) const {
  return impl_->prompt_ids(request);
}

}  // namespace nibble
