#include "api/text_model.h"

#include <chrono>
#include <filesystem>
#include <limits>
#include <utility>

#include "api/activation.h"
#include "api/chat_prompt.h"
#include "api/choice_sampling.h"
#include "api/device_choice.h"
#include "api/memory_fit.h"
#include "api/model_source.h"
#include "api/sampling_rules.h"
#include "base/error.h"
#include "tensor/machine_facts.h"
#include "text/harmony.h"

namespace nibble {
namespace {

using Clock = std::chrono::steady_clock;

void score_prompt(std::int32_t num_logprobs, PreparedRequest& out) {
  out.scores = std::make_shared<PromptScores>(out.tokens.prompt, num_logprobs);
  out.tokens.on_prompt_logits = [scores = out.scores](std::int32_t position,
                                                      std::span<const float> logits) {
    scores->take(position, logits);
  };
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

}  // namespace

Result<TextModel> TextModel::load(const EngineOptions& options) {
  const Clock::time_point begin = Clock::now();
  NIBBLE_ASSIGN_OR_RETURN(const ModelSource source,
                          find_source(options.model, options.load_format));
  const model::ModelConfig& config = source.config;
  TextModel out;
  out.defaults = source.defaults;
  NIBBLE_ASSIGN_OR_RETURN(out.tokenizer, load_tokenizer(options.model, config.vocab));
  if (out.tokenizer.has_value()) {
    out.constraints = std::make_unique<Constraints>();
  }
  MachineFacts machine;
  probe_host(machine);
  NIBBLE_ASSIGN_OR_RETURN(
      const ChosenDevice device,
      choose_device(options.use_reference_kernels ? DeviceChoice::kCpu : options.device));
  if (options.is_deterministic) {
    NIBBLE_RETURN_IF_ERROR(check_deterministic(device));
  }
  const bool is_on_gpu = device.kernels == model::KernelChoice::kCuda;
  NIBBLE_ASSIGN_OR_RETURN(EnginePlan plan,
                          plan_engine(options, config, source.weight_bytes(),
                                      is_on_gpu ? device.free_bytes : machine.available_bytes,
                                      is_on_gpu ? MemoryOf::kDevice : MemoryOf::kHost));
  if (is_on_gpu) {
    plan.model.kernels = device.kernels;
  }
  NIBBLE_ASSIGN_OR_RETURN(std::unique_ptr<model::Model> model, source.load(plan.model));
  const model::MemoryPlan memory = model->memory();
  out.info = {.model = options.model,
              .architecture = config.architecture,
              .device = device.reason,
              .activation = activation_name(options.activation),
              .kv_cache = cache_name(plan.model.kv_dtype),
              .vocab_size = config.vocab,
              .max_model_len = plan.model.max_position,
              .num_threads = model->num_threads(),
              .has_tokenizer = out.tokenizer.has_value(),
              .mapped_bytes = memory.mapped_bytes,
              .owned_weight_bytes = memory.owned_weight_bytes,
              .kv_bytes = memory.kv_bytes,
              .workspace_bytes = memory.workspace_bytes};
  out.engine = std::make_unique<engine::TokenEngine>(std::move(model), plan.limits);
  out.info.load_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  return out;
}

Result<const text::Tokenizer*> TextModel::need_tokenizer() const {
  if (!tokenizer.has_value()) {
    return error(Code::kUnsupported, "{}: no tokenizer.json; give token ids", info.model);
  }
  return &*tokenizer;
}

Result<std::vector<std::int32_t>> TextModel::prompt_ids(const Request& request) const {
  if (const auto* ids = std::get_if<TokenPrompt>(&request.prompt)) {
    return ids->ids;
  }
  NIBBLE_ASSIGN_OR_RETURN(const text::Tokenizer* tokens, need_tokenizer());
  if (const auto* raw = std::get_if<TextPrompt>(&request.prompt)) {
    return tokens->encode(raw->text, text::SpecialTokens::kRecognise);
  }
  NIBBLE_ASSIGN_OR_RETURN(const text::HarmonyTokens control, text::HarmonyTokens::find(*tokens));
  NIBBLE_ASSIGN_OR_RETURN(
      const std::vector<text::Message> conversation,
      harmony_conversation(std::get<ChatPrompt>(request.prompt), request.response_format));
  return text::render(conversation, *tokens, control, text::RenderFor::kCompletion);
}

std::vector<std::int32_t> TextModel::stop_ids(const Request& request) const {
  std::vector<std::int32_t> ids = request.stop_token_ids;
  if (!request.ignore_eos) {
    ids.insert(ids.end(), defaults.eos_ids.begin(), defaults.eos_ids.end());
  }
  return ids;
}

Result<AnswerFormat> TextModel::answer_format(const Request& request) const {
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

Result<engine::TokenRequest> TextModel::token_request(const Request& request) const {
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
  for (const auto& [field, count] : {std::pair{"top_logprobs", request.top_logprobs},
                                     {"prompt_logprobs", request.prompt_logprobs}}) {
    if (count < -1 || count > info.vocab_size) {
      return error(Code::kInvalidArgument, "{}: want -1 to {}, found {}", field, info.vocab_size,
                   count);
    }
  }
  return out;
}

Result<std::optional<ConstraintRules>> TextModel::rules_of(const Request& request) const {
  NIBBLE_ASSIGN_OR_RETURN(std::optional<ConstraintRules> rules, constraint_rules(request));
  if (rules && request.ignore_eos) {
    return error(Code::kInvalidArgument,
                 "ignore_eos: want false with response_format or tool_choice, found true");
  }
  return rules;
}

// An answer under rules ends by the rules' own end, so the tokens that spell it must stop
// generation.
Status TextModel::constrain(const ConstraintRules& rules, engine::TokenRequest& tokens) const {
  NIBBLE_ASSIGN_OR_RETURN(const text::Tokenizer* known, need_tokenizer());
  NIBBLE_ASSIGN_OR_RETURN(Constraint constraint, constraints->get(rules, *known, defaults.eos_ids));
  tokens.mask = std::move(constraint.mask);
  tokens.stop_ids.insert(tokens.stop_ids.end(), constraint.end_ids.begin(),
                         constraint.end_ids.end());
  return {};
}

Status TextModel::check_lengths(const Request& request, std::size_t num_prompt) const {
  const std::int64_t wanted = static_cast<std::int64_t>(num_prompt) + request.max_tokens;
  if (request.max_tokens_must_fit && request.max_tokens >= 0 && wanted > info.max_model_len) {
    return error(Code::kInvalidArgument,
                 "max_tokens: a prompt of {} tokens and max_tokens of {} want a context of {}, the "
                 "limit is {}",
                 num_prompt, request.max_tokens, wanted, info.max_model_len);
  }
  return {};
}

Result<PreparedRequest> TextModel::prepare(const Request& request) const {
  NIBBLE_ASSIGN_OR_RETURN(std::vector<PreparedRequest> one, prepare(request, 1));
  return std::move(one.front());
}

Result<std::vector<PreparedRequest>> TextModel::prepare(const Request& request,
                                                        std::size_t count) const {
  PreparedRequest first;
  NIBBLE_ASSIGN_OR_RETURN(first.format, answer_format(request));
  NIBBLE_ASSIGN_OR_RETURN(first.tokens, token_request(request));
  NIBBLE_RETURN_IF_ERROR(engine->check(first.tokens));
  NIBBLE_RETURN_IF_ERROR(check_lengths(request, first.tokens.prompt.size()));
  NIBBLE_ASSIGN_OR_RETURN(const std::optional<ConstraintRules> rules, rules_of(request));
  std::vector<PreparedRequest> out(count, first);
  for (std::size_t choice = 0; choice < count; ++choice) {
    engine::TokenRequest& tokens = out[choice].tokens;
    if (choice > 0) {
      NIBBLE_ASSIGN_OR_RETURN(tokens.sampling,
                              sampling_rules(choice_sampling(request.sampling, choice), defaults));
    }
    if (rules) {
      NIBBLE_RETURN_IF_ERROR(constrain(*rules, tokens));
    }
  }
  if (request.prompt_logprobs >= 0) {
    score_prompt(request.prompt_logprobs, out.front());
  }
  return out;
}

Result<std::vector<std::int32_t>> TextModel::encode(const std::string& text,
                                                    bool with_special) const {
  NIBBLE_ASSIGN_OR_RETURN(const text::Tokenizer* tokens, need_tokenizer());
  return tokens->encode(
      text, with_special ? text::SpecialTokens::kRecognise : text::SpecialTokens::kAsText);
}

Result<std::string> TextModel::decode(const std::vector<std::int32_t>& ids) const {
  NIBBLE_ASSIGN_OR_RETURN(const text::Tokenizer* tokens, need_tokenizer());
  return tokens->decode(ids);
}

}  // namespace nibble
