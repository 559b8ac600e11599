#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/verbs.h"

namespace nibble::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TokenizeFlags {
  ModelFlags model;
  InputFlags input;
  bool is_decoding = false;
  bool with_special = false;
  bool is_json = false;
};

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::string> encoded(const Session& session, const TokenizeFlags& flags,
                            const std::string& text) {
  NIBBLE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ids,
                          session.encode(text, flags.with_special));
  if (!flags.is_json) {
    return ids_text(ids) + "\n";
  }
  Json tokens = Json::array();
  for (const std::int32_t id : ids) {
    NIBBLE_ASSIGN_OR_RETURN(std::string token, session.decode({id}));
    tokens.push_back(std::move(token));
  }
  return line_of({{"ids", ids}, {"tokens", tokens}, {"count", ids.size()}});
}

Result<std::string> decoded(const Session& session, const TokenizeFlags& flags,
                            const std::vector<std::int32_t>& ids, bool is_terminal) {
  NIBBLE_ASSIGN_OR_RETURN(std::string text, session.decode(ids));
  if (flags.is_json) {
    return line_of({{"text", text}, {"ids", ids}, {"count", ids.size()}});
  }
  // Elsewhere exactly the bytes that the ids stand for.
  return is_terminal && !text.ends_with('\n') ? text + "\n" : text;
}

Outcome tokenize(Host& host, const TokenizeFlags& flags) {
  const InputFlags& input = flags.input;
  const int sources = (input.ids ? 1 : 0) + (input.text ? 1 : 0) + (input.file ? 1 : 0);
  if (sources > 1 || (sources == 0 && host.in_is_terminal)) {
    return wrong_usage(
        fmt::format("want one of -p TEXT, -f FILE, --ids or text on standard input, found {}",
                    sources == 0 ? "none" : "several"));
  }
  std::string text = input.text.value_or("");
  std::vector<std::int32_t> ids = input.ids.value_or(std::vector<std::int32_t>());
  if (!input.ids && !input.text) {
    Result<std::string> read = read_input(host, input.file.value_or("-"));
    if (!read) {
      return failed(read.error(), During::kRun);
    }
    text = std::move(*read);
  }
  const bool is_decoding = flags.is_decoding || input.ids;
  if (is_decoding && !input.ids) {
    Result<std::vector<std::int32_t>> parsed = parse_ids(text);
    if (!parsed) {
      return failed(parsed.error(), During::kRun);
    }
    ids = std::move(*parsed);
  }
  std::unique_ptr<Session> session;
  if (Outcome opened = open_model(host, flags.model, session); !opened.is_done()) {
    return opened;
  }
  const Result<std::string> result = is_decoding
                                         ? decoded(*session, flags, ids, host.out.is_terminal())
                                         : encoded(*session, flags, text);
  if (!result) {
    return failed(result.error(), During::kRun);
  }
  host.out.write(*result);
  return done();
}

}  // namespace

void add_tokenize(CLI::App& app, Invocation& invocation) {
  CLI::App& verb =
      add_verb(app, {"tokenize", "text to token ids and back",
                     "  nibble tokenize -p \"Hello\"                 ids with commas\n"
                     "  nibble tokenize MODEL < text.txt           the bytes as they are\n"
                     "  nibble tokenize --decode --ids 1,2,3       the text of these ids\n"
                     "  nibble tokenize -f a.txt | nibble tokenize --decode | cmp - a.txt\n"});
  auto flags = std::make_shared<TokenizeFlags>();
  add_model_flags(verb, flags->model);
  add_input_flags(verb, "the text", flags->input);
  add_switch(verb, "-d,--decode", flags->is_decoding, "ids to text; --ids implies it")
      ->group("Input");
  add_switch(verb, "--special", flags->with_special,
             "spellings of control tokens in the text become those tokens")
      ->group("Input");
  add_switch(verb, "--json", flags->is_json, "one JSON object: ids, tokens, count; or text")
      ->group("Output");
  set_action(verb, invocation, [&invocation, flags] { return tokenize(invocation.host, *flags); });
}

}  // namespace nibble::cli
