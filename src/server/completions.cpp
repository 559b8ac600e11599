// POST /v1/completions
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/call_body.h"
#include "server/completion_form.h"
#include "server/request_body.h"

namespace nibble::server {
namespace {

constexpr std::int32_t kDefaultMaxTokens = 16;  // OpenAI's
constexpr std::size_t kMostPrompts = 1024;

using Prompt = decltype(Request::prompt);

// A text, ids, or a list of either.
std::vector<Prompt> read_prompts(Fields& fields) {
  const char* const wanted = "a text, token ids, or a list of up to 1024 of either, none empty";
  const Json* value = fields.any("prompt");
  std::vector<Prompt> out;
  if (value != nullptr && value->is_string()) {
    out.emplace_back(TextPrompt{value->get<std::string>()});
  } else if (value != nullptr && value->is_array() && !value->empty()) {
    if (value->front().is_number()) {
      out.emplace_back(TokenPrompt{fields.ids_of(*value, "prompt")});
    } else {
      for (std::size_t i = 0; i < std::min(value->size(), kMostPrompts + 1); ++i) {
        const Json& one = (*value)[i];
        if (one.is_string()) {
          out.emplace_back(TextPrompt{one.get<std::string>()});
        } else if (one.is_array()) {
          out.emplace_back(TokenPrompt{fields.ids_of(one, fmt::format("prompt[{}]", i))});
        } else {
          fields.fail("prompt", wanted);
        }
      }
    }
  }
  if (out.empty() || out.size() > kMostPrompts) {
    fields.fail("prompt", wanted);
  }
  return out;
}

std::string text_of(const Prompt& prompt, const ModelHost& host) {
  if (const auto* text = std::get_if<TextPrompt>(&prompt)) {
    return text->text;
  }
  const Result<std::string> text = host.decode(std::get<TokenPrompt>(prompt).ids);
  return text ? *text : std::string();  // without a tokenizer there is nothing to show
}

// How many answers to each prompt are shown, and how many are generated to choose them from.
struct Choices {
  std::int64_t shown = 1;
  std::int64_t generated = 1;
};

Choices read_choices(Fields& fields, bool is_stream) {
  Choices out;
  out.shown = fields.integer("n", 1, kMostChoices).value_or(1);
  out.generated = fields.integer("best_of", 1, kMostChoices).value_or(out.shown);
  if (out.generated < out.shown) {
    fields.fail("best_of", fmt::format("n, {}, or more", out.shown));
  } else if (out.generated > out.shown && is_stream) {
    fields.refuse(bad_request(
        "best_of", fmt::format("best_of: want n, {}, in a stream, where no answer can be taken "
                               "back, found {}",
                               out.shown, out.generated)));
  }
  return out;
}

void refuse_unsupported(Fields& fields) {
  fields.refuse_unless_idle("suffix", "not supported: this model continues texts at their end");
  fields.refuse_unless_idle("prompt_logprobs", "not supported; want echo with logprobs");
}

void echo_logprobs(Fields& fields, bool is_stream, Request& request) {
  if (is_stream) {
    fields.refuse(bad_request("logprobs",
                              "logprobs: want it without echo in a stream: the prompt's come with "
                              "the end of its answer"));
  }
  request.prompt_logprobs = request.top_logprobs;
}

}  // namespace

void completions(const Call& call) {
  const std::optional<Json> body = body_of(call);
  if (!body.has_value()) {
    return;
  }
  std::optional<ApiError> fault;
  Fields fields(*body, "", fault);
  Request base;
  read_model(fields, call.context);
  std::vector<Prompt> prompts = read_prompts(fields);
  read_sampling(fields, base);
  const bool is_echo = fields.boolean("echo").value_or(false);
  base.max_tokens = kDefaultMaxTokens;
  read_max_tokens(fields, {"max_tokens"}, is_echo ? 0 : 1, base);
  base.top_logprobs = static_cast<std::int32_t>(fields.integer("logprobs", 0, 20).value_or(-1));
  read_constraints(fields, base);
  refuse_unsupported(fields);
  const StreamOptions stream = read_stream(fields);
  const Choices choices = read_choices(fields, stream.is_stream);
  CompletionOptions options{.frame = {.id_prefix = "cmpl-",
                                      .object = "text_completion",
                                      .chunk_object = "text_completion",
                                      .model = call.context.model_name(),
                                      .fingerprint = fingerprint_of(call.loaded.host->info()),
                                      .includes_usage = stream.includes_usage,
                                      .wants_receipt = fields.boolean("receipt").value_or(false),
                                      .request_id = call.exchange->request_id},
                            .num_generated = static_cast<std::size_t>(choices.generated),
                            .num_shown = static_cast<std::size_t>(choices.shown),
                            .wants_logprobs = base.top_logprobs >= 0,
                            .echoes_logprobs = is_echo && base.top_logprobs >= 0};
  if (options.echoes_logprobs) {
    echo_logprobs(fields, stream.is_stream, base);
  }
  if (fault.has_value()) {
    call.exchange->reply(error_reply(*fault));
    return;
  }
  if (choices.generated > choices.shown) {  // what the likeliest are told by
    base.top_logprobs = std::max(base.top_logprobs, 0);
  }
  GenerationJob job{.is_stream = stream.is_stream};
  for (Prompt& prompt : prompts) {
    options.echoes.push_back(is_echo ? text_of(prompt, *call.loaded.host) : "");
    base.prompt = std::move(prompt);
    job.questions.push_back({base, options.num_generated});
  }
  job.form = make_completion_form(*call.loaded.host, std::move(options));
  run_job(call, std::move(job));
}

}  // namespace nibble::server
