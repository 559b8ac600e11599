#include "server/batch.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/batch_progress.h"
#include "cli/serving_flags.h"
#include "cli/verbs.h"

namespace nibble::cli {
namespace {

struct BatchFlags {
  ModelFlags model;
  server::BatchOptions options;
};

// What was computed is in the output; the same command goes on.
Outcome stopped(const server::BatchOutcome& outcome) {
  const Outcome reason = failed(outcome.status, During::kRun);
  return {reason.exit, fmt::format("{}; {} of {} lines are done, the same command goes on",
                                   reason.message, outcome.progress.done, outcome.progress.total)};
}

Outcome batch(Host& host, const BatchFlags& flags) {
  const Result<std::string> folder =
      find_model(host, flags.model.model, load_format(flags.model.load_format));
  if (!folder) {
    return failed(folder.error(), During::kLoad);
  }
  server::BatchOptions options = flags.options;
  options.service.engine = engine_options(flags.model, *folder);
  options.api.model_names = served_names(options.api.model_names, flags.model, *folder);
  options.api.logs_requests = false;
  options.api.response_store_bytes = 0;  // lines have no order in which one could build on another
  BatchProgressLine line(host.err, host.err_is_terminal);
  const server::BatchOutcome outcome = host.backend.batch(
      options, [&line](const server::BatchProgress& progress) { line.show(progress); });
  switch (outcome.end) {
    case server::BatchEnd::kFiles: return failed(outcome.status, During::kRun);
    case server::BatchEnd::kModel:
      return failed_to_load(host, outcome.status, options.service.engine.device,
                            options.service.engine.is_deterministic);
    case server::BatchEnd::kFailed: return stopped(outcome);
    case server::BatchEnd::kDone: break;
  }
  line.finish(outcome.progress);
  if (outcome.progress.failed > 0) {
    return {Exit::kFailure,
            fmt::format("{} of {} lines failed; {} says why", outcome.progress.failed,
                        outcome.progress.total, options.output)};
  }
  return done();
}

}  // namespace

void add_batch(CLI::App& app, Invocation& invocation) {
  CLI::App& verb = add_verb(
      app, {"batch", "answer a file of API requests, offline",
            "  nibble batch requests.jsonl answers.jsonl\n"
            "  nibble batch requests.jsonl answers.jsonl openai/gpt-oss-20b --max-num-seqs 64\n"
            "The files are those of OpenAI's batches, in any order:\n"
            "  {\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\",\n"
            "   \"body\": {\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}}\n"
            "The same command again goes on where an interrupted one stopped.\n"});
  auto flags = std::make_shared<BatchFlags>();
  add_text(verb, {"IN", "IN", "file of requests, one JSON object a line"}, flags->options.input)
      ->required();
  add_text(verb, {"OUT", "OUT", "file of answers: created, or continued"}, flags->options.output)
      ->required();
  add_model_flags(verb, flags->model);
  add_served_names(verb, flags->options.api.model_names);
  add_batching_flags(verb, flags->model.engine);
  set_action(verb, invocation, [&invocation, flags] { return batch(invocation.host, *flags); });
}

}  // namespace nibble::cli
