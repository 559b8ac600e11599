#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/logits_file.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace nibble::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMaxTop = 1000;

struct ScoreFlags {
  ModelFlags model;
  InputFlags input;
  std::int32_t top = 0;
  std::string logits;
  bool with_special = false;
  bool is_json = false;
};

Result<std::string> input_text(const Host& host, const InputFlags& input) {
  return input.text ? Result<std::string>(*input.text) : read_input(host, input.file.value_or("-"));
}

Result<std::vector<std::int32_t>> input_ids(const Host& host, const ScoreFlags& flags,
                                            const Session& session) {
  if (flags.input.ids) {
    return *flags.input.ids;
  }
  NIBBLE_ASSIGN_OR_RETURN(const std::string text, input_text(host, flags.input));
  NIBBLE_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, session.encode(text, flags.with_special));
  if (ids.empty()) {
    return error(Code::kInvalidArgument, "want a text of at least 1 token, found {} bytes",
                 text.size());
  }
  return ids;
}

Json logprob_json(float logprob) { return std::isnan(logprob) ? Json() : Json(logprob); }

std::string as_json(const ScoreResult& result, std::int32_t top) {
  Json ids = Json::array();
  Json logprobs = Json::array();
  Json tops = Json::array();
  for (std::size_t i = 0; i < result.tokens.size(); ++i) {
    const TokenLogprob& token = result.tokens[i];
    ids.push_back(token.id);
    logprobs.push_back(i == 0 ? Json() : logprob_json(token.logprob));
    Json best = Json::array();
    for (const auto& [id, logprob] : token.top) {
      best.push_back({{"id", id}, {"logprob", logprob_json(logprob)}});
    }
    tops.push_back(i == 0 ? Json() : best);
  }
  Json json = {{"ids", ids},
               {"logprobs", logprobs},
               {"perplexity", std::isnan(result.perplexity) ? Json() : Json(result.perplexity)}};
  if (top > 0) {
    json["top"] = tops;
  }
  return json.dump() + "\n";
}

// A token's text for a table cell: quoted, control characters escaped; its id without tokenizer.
std::string spelled(const Session& session, std::int32_t id) {
  if (!session.info().has_tokenizer) {
    return std::to_string(id);
  }
  const Result<std::string> text = session.decode({id});
  return text ? Json(*text).dump(-1, ' ', false, Json::error_handler_t::replace)
              : std::to_string(id);
}

std::string as_table(const ScoreResult& result, const Session& session, std::int32_t top) {
  const bool has_text = session.info().has_tokenizer;
  Table table({{"position", Table::Align::kRight}, {"id", Table::Align::kRight}});
  if (has_text) {
    table.add_column({"token", Table::Align::kLeft});
  }
  table.add_column({"logprob", Table::Align::kRight});
  if (top > 0) {
    table.add_column({"most likely", Table::Align::kLeft});
  }
  for (std::size_t i = 0; i < result.tokens.size(); ++i) {
    const TokenLogprob& token = result.tokens[i];
    std::vector<std::string> row = {std::to_string(i), std::to_string(token.id)};
    if (has_text) {
      row.push_back(spelled(session, token.id));
    }
    row.push_back(i == 0 ? "-" : fmt::format("{:.4f}", token.logprob));
    std::string best;
    for (const auto& [id, logprob] : token.top) {
      best += fmt::format("{}{} {:.4f}", best.empty() ? "" : "  ", spelled(session, id), logprob);
    }
    if (top > 0) {
      row.push_back(best);
    }
    table.add_row(std::move(row));
  }
  const std::string perplexity =
      std::isnan(result.perplexity) ? "-" : fmt::format("{:.4f}", result.perplexity);
  return table.text() +
         fmt::format("\n{} tokens, perplexity {}\n", result.tokens.size(), perplexity);
}

Outcome score(Host& host, const ScoreFlags& flags) {
  const InputFlags& input = flags.input;
  const int sources = (input.ids ? 1 : 0) + (input.text ? 1 : 0) + (input.file ? 1 : 0);
  if (sources > 1 || (sources == 0 && host.in_is_terminal)) {
    return wrong_usage(
        fmt::format("want one of -p TEXT, -f FILE, --ids or text on standard input, found {}",
                    sources == 0 ? "none" : "several"));
  }
  std::unique_ptr<Session> session;
  if (Outcome opened = open_model(host, flags.model, session); !opened.is_done()) {
    return opened;
  }
  ScoreRequest request;
  request.top = flags.top;
  Result<std::vector<std::int32_t>> ids = input_ids(host, flags, *session);
  if (!ids) {
    return failed(ids.error(), During::kRun);
  }
  request.ids = std::move(*ids);
  std::optional<LogitsFile> file;
  if (!flags.logits.empty()) {
    Result<LogitsFile> created = LogitsFile::create(
        flags.logits, static_cast<std::int64_t>(request.ids.size()), session->info().vocab_size);
    if (!created) {
      return failed(created.error(), During::kRun);
    }
    file.emplace(std::move(*created));
    request.on_logits = [&file](std::int32_t, std::span<const float> row) { file->append(row); };
  }
  const Result<ScoreResult> result = session->score(request);
  if (!result) {
    return failed(result.error(), During::kRun);
  }
  if (file) {
    if (const Status status = file->finish(); !status.ok()) {
      return failed(status, During::kRun);
    }
  }
  host.out.write(flags.is_json ? as_json(*result, flags.top)
                               : as_table(*result, *session, flags.top));
  return done();
}

}  // namespace

void add_score(CLI::App& app, Invocation& invocation) {
  CLI::App& verb = add_verb(
      app, {"score", "log-probabilities and perplexity of a given text",
            "  nibble score -p \"Once upon a time\"              a table, then the perplexity\n"
            "  nibble score MODEL -f book.txt --json > a.json  to compare engines\n"
            "  nibble score MODEL --ids 1,2,3 --top 5          needs no tokenizer\n"
            "  nibble score MODEL --ids 1,2,3 --activation f32 --logits out.safetensors\n"});
  auto flags = std::make_shared<ScoreFlags>();
  add_model_flags(verb, flags->model);
  add_input_flags(verb, "the text", flags->input);
  add_switch(verb, "--special", flags->with_special,
             "spellings of control tokens in the text become those tokens")
      ->group("Input");
  add_integer(verb, {"--top", "N", "also the N most likely tokens at each position"}, {0, kMaxTop},
              flags->top)
      ->group("Output");
  add_switch(verb, "--json", flags->is_json,
             "one JSON object: ids, logprobs (first is null), perplexity, top")
      ->group("Output");
  add_text(
      verb,
      {"--logits", "FILE", "write all logits as safetensors: \"logits\" [tokens, vocab] float32"},
      flags->logits)
      ->group("Output");
  set_action(verb, invocation, [&invocation, flags] { return score(invocation.host, *flags); });
}

}  // namespace nibble::cli
