#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "cli/answer.h"
#include "cli/chat.h"
#include "cli/effort.h"
#include "cli/flags.h"
#include "cli/verbs.h"

namespace nibble::cli {
namespace {

constexpr const char* kOutputGroup = "Output";
constexpr const char* kChatGroup = "Chat format";

struct RunFlags {
  ModelFlags model;
  InputFlags input;
  Request request;  // all but its prompt
  std::string effort = "medium";
  std::string system;
  std::string date;
  std::string history;
  std::optional<std::string> json_schema;
  bool is_raw = false;
  bool show_reasoning = false;
  bool is_json = false;
  bool is_quiet = false;
};

void add_flags(CLI::App& verb, RunFlags& flags) {
  add_model_flags(verb, flags.model);
  add_input_flags(verb, "the prompt", flags.input);
  add_switch(verb, "--raw", flags.is_raw, "continue the text as it is, without a chat format")
      ->group("Input");
  add_choice(verb, {"--reasoning-effort", "LEVEL", "low, medium (default) or high"},
             {"low", "medium", "high"}, flags.effort)
      ->group(kChatGroup);
  add_text(verb, {"--system,--system-prompt", "TEXT", "instructions to the model"}, flags.system)
      ->group(kChatGroup);
  const auto date_check = [](std::string& text) {
    const auto date = parse_date(text);
    return date ? std::string() : date.error().message();
  };
  add_text(
      verb,
      {"--current-date", "DATE", "the date that the model is told, YYYY-MM-DD (default: today)"},
      flags.date)
      ->check(CLI::Validator(date_check, "", ""))
      ->group(kChatGroup);
  add_text(verb, {"--history", "FILE", "keep the typed lines of chats in FILE"}, flags.history)
      ->group(kChatGroup);
  add_integer(verb,
              {"-n,--max-tokens,--n-predict", "N",
               "most tokens to generate; -1 (default): until the context is full"},
              {-1, std::int64_t{1} << 30}, flags.request.max_tokens)
      ->group(kOutputGroup);
  add_texts(verb, {"--stop", "TEXT", "end the answer before TEXT; may be repeated"},
            flags.request.stop)
      ->group(kOutputGroup);
  add_text(
      verb,
      {"--json-schema", "FILE", "hold the answer to the JSON schema in FILE ('-': standard input)"},
      flags.json_schema)
      ->group(kOutputGroup);
  add_switch(verb, "--ignore-eos", flags.request.ignore_eos, "go on after the end of the answer")
      ->group(kOutputGroup);
  add_switch(verb, "--show-reasoning", flags.show_reasoning,
             "print the analysis before the answer: dimmed on a terminal,\nelsewhere between the "
             "lines [reasoning] and [answer]")
      ->group(kOutputGroup);
  add_switch(verb, "--json", flags.is_json,
             "one JSON object: texts, ids, finish reason, usage, timings")
      ->group(kOutputGroup);
  add_switch(verb, "-q,--quiet", flags.is_quiet, "no timings on standard error")
      ->group(kOutputGroup);
  add_sampling_flags(verb, flags.request.sampling);
}

// The text asked for: -p, then the file; or standard input alone, without its last newline.
Result<std::string> prompt_text(const Host& host, const InputFlags& input) {
  std::string text = input.text.value_or("");
  const bool is_piped = !input.text && !input.file;
  if (is_piped || input.file) {
    Result<std::string> read = read_input(host, is_piped ? "-" : *input.file);
    if (!read) {
      return read.error();
    }
    if (read->ends_with('\n')) {
      read->pop_back();
    }
    text += (text.empty() ? "" : "\n\n") + *read;
  }
  if (text.empty()) {
    return Status(Code::kInvalidArgument,
                  is_piped ? "want a prompt on standard input, found 0 bytes; or give -p TEXT"
                           : "want a prompt, found 0 bytes");
  }
  return text;
}

ChatPrompt chat_prompt(const Host& host, const RunFlags& flags) {
  ChatPrompt prompt;
  prompt.effort = effort_of(flags.effort).value_or(ReasoningEffort::kMedium);
  prompt.current_date = flags.date.empty() ? host.today : flags.date;
  if (!flags.system.empty()) {
    ChatMessage message;
    message.role = ChatRole::kSystem;
    message.content = flags.system;
    prompt.messages.push_back(std::move(message));
  }
  return prompt;
}

Status set_format(const Host& host, const RunFlags& flags, Request& request) {
  if (!flags.json_schema) {
    return {};
  }
  Result<std::string> schema = read_input(host, *flags.json_schema);
  if (!schema) {
    return schema.error();
  }
  request.response_format.kind = ResponseFormat::Kind::kJsonSchema;
  request.response_format.schema_json = std::move(*schema);
  return {};
}

Status set_prompt(const Host& host, const RunFlags& flags, Request& request) {
  if (flags.input.ids) {
    request.prompt = TokenPrompt{*flags.input.ids};
    request.top_logprobs = 0;  // asks for an event for each token
    return {};
  }
  Result<std::string> text = prompt_text(host, flags.input);
  if (!text) {
    return text.error();
  }
  if (flags.is_raw) {
    request.prompt = TextPrompt{std::move(*text)};
    return {};
  }
  ChatPrompt prompt = chat_prompt(host, flags);
  ChatMessage message;
  message.role = ChatRole::kUser;
  message.content = std::move(*text);
  prompt.messages.push_back(std::move(message));
  request.prompt = std::move(prompt);
  return {};
}

Outcome answer_once(Host& host, const RunFlags& flags) {
  Request request = flags.request;
  for (const auto set : {set_format, set_prompt}) {
    if (const Status status = set(host, flags, request); !status.ok()) {
      return failed(status, During::kRun);
    }
  }
  std::unique_ptr<Session> session;
  if (Outcome opened = open_model(host, flags.model, session); !opened.is_done()) {
    return opened;
  }
  AnswerPrinter printer(host.out,
                        flags.input.ids ? AnswerPrinter::Form::kIds : AnswerPrinter::Form::kText,
                        flags.show_reasoning);
  const Result<Response> response = session->generate(
      request, [&](const Delta& delta) { return flags.is_json || printer.print(delta); });
  if (!response) {
    return failed(response.error(), During::kRun);
  }
  if (flags.is_json) {
    host.out.write(response_json(*response, session->info()));
  } else {
    printer.finish(*response);
  }
  if (!flags.is_json && !flags.is_quiet && host.out.is_open()) {
    const std::string text = timings_text(*response, session->info());
    std::fprintf(host.err, host.err_is_terminal ? "\n\x1b[2m%s\x1b[0m\n" : "%s\n", text.c_str());
  }
  return done();
}

Outcome chat(Host& host, const RunFlags& flags) {
  if (flags.is_raw || flags.is_json) {
    return wrong_usage(std::string(flags.is_raw ? "--raw" : "--json") +
                       " needs a prompt: -p TEXT, -f FILE, --ids or standard input");
  }
  if (!host.out.is_terminal()) {
    return wrong_usage("want a prompt (-p TEXT), or a terminal on standard output for a chat");
  }
  std::unique_ptr<Session> session;
  if (Outcome opened = open_model(host, flags.model, session); !opened.is_done()) {
    return opened;
  }
  ChatOptions options;
  options.request = flags.request;
  if (const Status status = set_format(host, flags, options.request); !status.ok()) {
    return failed(status, During::kRun);
  }
  options.request.prompt = chat_prompt(host, flags);
  options.show_reasoning = flags.show_reasoning;
  return run_chat(host, *session, options, flags.history);
}

Outcome run(Host& host, const RunFlags& flags) {
  const InputFlags& input = flags.input;
  if (input.ids && (input.text || input.file)) {
    return wrong_usage("want either --ids or a text, found both");
  }
  if (Outcome found = find_folder(host, flags.model); !found.is_done()) {
    return found;
  }
  const bool has_prompt = input.ids || input.text || input.file || !host.in_is_terminal;
  return has_prompt ? answer_once(host, flags) : chat(host, flags);
}

}  // namespace

void add_run(CLI::App& app, Invocation& invocation) {
  CLI::App& verb = add_verb(
      app,
      {"run", "answer a prompt, or chat",
       "  nibble run                                   chat with the demo model\n"
       "  nibble run -p \"Tell me a story.\"             one answer; timings on standard error\n"
       "  nibble run MODEL < question.txt              the prompt from standard input\n"
       "  nibble run -p \"Summarise this.\" -f notes.md  the text, a blank line, then the file\n"
       "  nibble run --raw -p \"Once upon a time\" -n 50\n"
       "  nibble run --raw --ids 1,2,3 -n 8            ids in, ids out: needs no tokenizer\n"
       "  nibble run -p \"2+2?\" --json --temp 0 | jq -r .content\n"
       "  nibble run -p \"Describe a cat.\" --json-schema cat.json\n"});
  auto flags = std::make_shared<RunFlags>();
  add_flags(verb, *flags);
  set_action(verb, invocation, [&invocation, flags] { return run(invocation.host, *flags); });
}

}  // namespace nibble::cli
