// POST /v1/completions
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/call_body.h"
#include "server/generation_job.h"
#include "server/request_body.h"
#include "server/usage.h"

namespace nibble::server {
namespace {

constexpr std::int32_t kDefaultMaxTokens = 16;  // OpenAI's
constexpr std::size_t kMostPrompts = 1024;

struct CompletionOptions {
  std::string model;
  std::vector<std::string> echoes;  // one for each choice: the prompt, or nothing
  bool includes_usage = false;
  bool wants_logprobs = false;
  bool wants_receipt = false;
  std::size_t choices_per_prompt = 1;
  std::string request_id;
};

std::size_t num_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  }));
}

class CompletionForm final : public AnswerForm {
 public:
  CompletionForm(const ModelHost& host, CompletionOptions options)
      : host_(host),
        options_(std::move(options)),
        id_(new_id("cmpl-")),
        created_(unix_time()),
        held_(options_.echoes.size()),
        offsets_(options_.echoes.size()) {
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      offsets_[i] = num_characters(options_.echoes[i]);
    }
  }

  void begin(std::string& out) override {
    for (std::size_t choice = 0; choice < options_.echoes.size(); ++choice) {
      if (!options_.echoes[choice].empty()) {
        append_chunk(choice, {options_.echoes[choice], Json(), Json()}, out);
      }
    }
  }

  void delta(std::size_t choice, const Delta& delta, std::string& out) override {
    if (delta.kind == Delta::Kind::kContent) {
      held_[choice] += delta.text;
      if (!options_.wants_logprobs) {
        flush(choice, out);
      }
    } else if (delta.kind == Delta::Kind::kTokens && options_.wants_logprobs) {
      const Json logprobs = logprobs_json(delta.tokens, offsets_[choice]);
      if (!logprobs["tokens"].empty()) {
        append_chunk(choice, {std::exchange(held_[choice], {}), logprobs, Json()}, out);
      }
    }
  }

  void end(std::size_t choice, const Response& response, std::string& out) override {
    flush(choice, out);
    append_chunk(choice, {"", Json(), finish_of(response)}, out);
  }

  void finish(const std::vector<Response>& responses, std::string& out) override {
    if (options_.includes_usage || options_.wants_receipt) {
      Json last = head();
      last["choices"] = Json::array();
      complete(responses, options_.includes_usage, last);
      append_event(last, out);
    }
    out += "data: [DONE]\n\n";
  }

  void fail(const ApiError& error, std::string& out) override {
    out.append("data: ").append(error_json(error)).append("\n\ndata: [DONE]\n\n");
  }

  Json whole(const std::vector<Response>& responses) override {
    Json out = head();
    out["choices"] = Json::array();
    for (std::size_t i = 0; i < responses.size(); ++i) {
      std::size_t offset = num_characters(options_.echoes[i]);
      out["choices"].push_back(
          {{"index", i},
           {"text", options_.echoes[i] + responses[i].content},
           {"logprobs",
            options_.wants_logprobs ? logprobs_json(responses[i].logprobs, offset) : Json()},
           {"finish_reason", finish_of(responses[i])}});
    }
    complete(responses, true, out);
    return out;
  }

 private:
  struct Piece {
    std::string text;
    Json logprobs;
    Json finish;
  };

  static const char* finish_of(const Response& response) {
    return response.finish_reason == FinishReason::kLength ? "length" : "stop";
  }

  Json head() const {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", options_.model}};
  }

  // Each prompt counts once, however many choices it has.
  void complete(const std::vector<Response>& responses, bool with_usage, Json& out) const {
    Usage sum;
    for (std::size_t first = 0; first < responses.size(); first += options_.choices_per_prompt) {
      const auto begin = responses.begin() + static_cast<std::ptrdiff_t>(first);
      const Usage one =
          total_usage({begin, begin + static_cast<std::ptrdiff_t>(options_.choices_per_prompt)});
      sum.prompt_tokens += one.prompt_tokens;
      sum.cached_tokens += one.cached_tokens;
      sum.completion_tokens += one.completion_tokens;
    }
    if (with_usage) {
      out["usage"] = usage_json(sum);
    }
    if (options_.wants_receipt) {
      out["receipt"] = receipt_json(options_.request_id, responses);
    }
  }

  // OpenAI's older form: four lists. `offset` counts the characters so far.
  Json logprobs_json(const std::vector<TokenLogprob>& tokens, std::size_t& offset) const {
    Json out = {{"tokens", Json::array()},
                {"token_logprobs", Json::array()},
                {"top_logprobs", Json::array()},
                {"text_offset", Json::array()}};
    for (const TokenLogprob& token : tokens) {
      if (token.part != TokenPart::kContent) {
        continue;
      }
      const std::string text = host_.token_bytes(token.id);
      Json top = Json::object();
      for (const auto& [id, logprob] : token.top) {
        top[host_.token_bytes(id)] = finite_logprob(logprob);
      }
      out["tokens"].push_back(text);
      out["token_logprobs"].push_back(finite_logprob(token.logprob));
      out["top_logprobs"].push_back(std::move(top));
      out["text_offset"].push_back(offset);
      offset += num_characters(text);
    }
    return out;
  }

  void append_chunk(std::size_t choice, const Piece& piece, std::string& out) const {
    Json chunk = head();
    chunk["choices"] = Json::array({{{"index", choice},
                                     {"text", piece.text},
                                     {"logprobs", piece.logprobs},
                                     {"finish_reason", piece.finish}}});
    if (options_.includes_usage) {
      chunk["usage"] = nullptr;
    }
    append_event(chunk, out);
  }

  void flush(std::size_t choice, std::string& out) {
    if (!held_[choice].empty()) {
      append_chunk(choice, {std::exchange(held_[choice], {}), Json(), Json()}, out);
    }
  }

  const ModelHost& host_;
  CompletionOptions options_;
  std::string id_;
  std::int64_t created_ = 0;
  std::vector<std::string> held_;
  std::vector<std::size_t> offsets_;
};

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
  const std::vector<Prompt> prompts = read_prompts(fields);
  read_sampling(fields, base);
  const bool is_echo = fields.boolean("echo").value_or(false);
  base.max_tokens = kDefaultMaxTokens;
  read_max_tokens(fields, {"max_tokens"}, is_echo ? 0 : 1, base);
  base.top_logprobs = static_cast<std::int32_t>(fields.integer("logprobs", 0, 20).value_or(-1));
  if (is_echo && base.top_logprobs >= 0) {
    fields.refuse(not_supported(
        "logprobs", "logprobs: not supported together with echo: the prompt has none yet"));
  }
  read_constraints(fields, base);
  fields.refuse_unless_idle("suffix", "not supported: this model continues texts at their end");
  const std::int64_t n = fields.integer("n", 1, kMostChoices).value_or(1);
  if (fields.integer("best_of", 1, kMostChoices).value_or(n) != n) {
    fields.refuse(not_supported("best_of", "best_of: not supported yet; want it equal to n"));
  }
  const StreamOptions stream = read_stream(fields);
  CompletionOptions options{.model = call.context.model_name(),
                            .includes_usage = stream.includes_usage,
                            .wants_logprobs = base.top_logprobs >= 0,
                            .wants_receipt = fields.boolean("receipt").value_or(false),
                            .choices_per_prompt = static_cast<std::size_t>(n),
                            .request_id = call.exchange->request_id};
  if (fault.has_value()) {
    call.exchange->reply(error_reply(*fault));
    return;
  }
  GenerationJob job{.is_stream = stream.is_stream};
  for (const Prompt& prompt : prompts) {
    base.prompt = prompt;
    for (Request& request : choices_of(base, n)) {
      job.requests.push_back(std::move(request));
      options.echoes.push_back(is_echo ? text_of(prompt, *call.loaded.host) : "");
    }
  }
  job.form = std::make_unique<CompletionForm>(*call.loaded.host, std::move(options));
  run_job(call, std::move(job));
}

}  // namespace nibble::server
