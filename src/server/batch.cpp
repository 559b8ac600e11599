#include "server/batch.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "base/error.h"
#include "server/batch_input.h"
#include "server/batch_output.h"

namespace nibble::server {
namespace {

// For each line that is computed another one waits, its prompt read.
constexpr std::int32_t kInFlightFactor = 2;

Status check_files(const BatchOptions& options) {
  std::error_code ignored;
  if (std::filesystem::equivalent(options.input, options.output, ignored)) {
    return error(Code::kInvalidArgument, "{}: want two files, found one for input and output",
                 options.input);
  }
  return {};
}

BatchProgress progress_of(BatchInput& input, const BatchOutput& output) {
  BatchProgress out{.failed = output.num_failures()};
  while (const std::optional<BatchLine> line = input.next()) {
    ++out.total;
    out.done += output.has(*line) ? 1 : 0;
  }
  out.kept = out.done;
  input.rewind();
  return out;
}

Result<Loaded> load(const BatchOptions& options) {
  ServiceOptions wanted = options.service;
  // A line may be thousands of requests of the engine; how many lines are in flight is limited.
  wanted.max_queued = std::numeric_limits<std::int32_t>::max() / 2;
  NIBBLE_ASSIGN_OR_RETURN(Service service, Service::start(wanted));
  auto host = std::make_unique<ServiceHost>(std::move(service));
  auto metrics = std::make_unique<Metrics>(options.api.model_names.front(), host->info());
  return Loaded{std::move(host), std::move(metrics)};
}

}  // namespace

BatchOutcome batch(const BatchOptions& options,
                   const std::function<void(const BatchProgress&)>& on_progress) {
  const auto refused = [](const Status& status) {
    return BatchOutcome{.end = BatchEnd::kFiles, .status = status};
  };
  Result<BatchInput> input = BatchInput::open(options.input);
  if (!input) {
    return refused(input.error());
  }
  const Status files = check_files(options);
  if (!files.ok()) {
    return refused(files);
  }
  Result<BatchOutput> output = BatchOutput::open(options.output);
  if (!output) {
    return refused(output.error());
  }
  BatchOutcome outcome{.progress = progress_of(*input, *output)};
  if (outcome.progress.done == outcome.progress.total) {
    return outcome;
  }
  Result<Loaded> loaded = load(options);
  if (!loaded) {
    return {.end = BatchEnd::kModel, .status = loaded.error(), .progress = outcome.progress};
  }
  Log log(stderr, false, LogLevel::kError);
  ApiContext context(options.api, log);
  context.loaded = &*loaded;
  BatchRunner runner(
      context, *output,
      static_cast<std::size_t>(kInFlightFactor * options.service.engine.max_num_seqs));
  outcome.status = runner.run(*input, outcome.progress, [&](const BatchProgress& progress) {
    outcome.progress = progress;
    on_progress(progress);
  });
  outcome.end = outcome.status.ok() ? BatchEnd::kDone : BatchEnd::kFailed;
  loaded->host.reset();  // what it still posts goes to the runner
  return outcome;
}

}  // namespace nibble::server
