#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>

#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace nibble::cli {
namespace {

struct MakeModelFlags {
  commands::MakeModelOptions options;
  std::optional<std::uint64_t> seed;
  bool is_dry_run = false;
};

Outcome print_plan(Host& host, const commands::MakeModelOptions& options) {
  const Result<commands::MakeModelPlan> plan = host.backend.plan_model(options);
  if (!plan) {
    return failed(plan.error(), During::kRun);
  }
  Table table({{"tensor"}, {"type"}, {"shape"}, {"bytes", Table::Align::kRight}});
  for (const commands::MakeModelTensor& tensor : plan->tensors) {
    table.add_row({tensor.name, tensor.dtype, tensor.shape, std::to_string(tensor.bytes)});
  }
  host.out.write(table.text());
  host.out.write(fmt::format("\n{} tensors, {} bytes ({}) in {} {}\n", plan->tensors.size(),
                             plan->total_bytes, bytes_text(plan->total_bytes), plan->num_shards,
                             plan->num_shards == 1 ? "file" : "files"));
  return done();
}

Outcome write_model(Host& host, const commands::MakeModelOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Progress progress(host.out, "writing");
  const InterruptGuard guard;  // Ctrl-C stops between pieces, so that nothing is left behind
  clear_interrupt();
  std::int64_t bytes = 0;
  const Status status =
      host.backend.make_model(options, [&](std::int64_t written, std::int64_t total) {
        bytes = total;
        progress.show(written, total);
        return !is_interrupted();
      });
  progress.finish();
  if (!status.ok()) {
    return failed(status, During::kRun);
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  host.out.write(fmt::format("wrote {}: {} in {:.1f} s\n", options.destination, bytes_text(bytes),
                             time.count()));
  return done();
}

Outcome make_model(Host& host, const MakeModelFlags& flags) {
  commands::MakeModelOptions options = flags.options;
  options.seed = flags.seed.value_or(0);
  if (flags.is_dry_run) {
    return print_plan(host, options);
  }
  if (options.destination.empty()) {
    return wrong_usage("want a folder to write, found none: nibble make-model --preset NAME DST");
  }
  return write_model(host, options);
}

}  // namespace

void add_make_model(CLI::App& app, Invocation& invocation) {
  CLI::App& verb = add_verb(
      app, {"make-model", "a checkpoint with random weights, for tests and benchmarks",
            "  nibble make-model --preset tiny /tmp/tiny\n"
            "  nibble make-model --preset gpt-oss-20b /data/random-20b\n"
            "  nibble make-model --preset gpt-oss-120b --layers 2 /tmp/two-layers\n"
            "  nibble make-model --preset gpt-oss-120b --dry-run   names, shapes, bytes\n"});
  auto flags = std::make_shared<MakeModelFlags>();
  commands::MakeModelOptions& options = flags->options;
  add_text(verb, {"DST", "DST", "folder to create; must be empty or absent"}, options.destination);
  const std::vector<std::string> presets = invocation.host.backend.preset_names();
  const std::string preset_text = fmt::format("shape: {}", fmt::join(presets, ", "));
  add_choice(verb, {"--preset", "NAME", preset_text.c_str()}, presets, options.preset)->required();
  add_integer(verb, {"--layers", "N", "only N layers (default: the preset's)"}, {0, 1000},
              options.num_layers);
  add_text(verb, {"--tokenizer", "DIR", "copy the tokenizer of DIR; it must fit the vocabulary"},
           options.tokenizer_folder);
  add_count(verb, {"--max-shard-size", "BYTES", "split files above this (default: 5G)"},
            {1, std::numeric_limits<std::int64_t>::max()}, options.max_shard_bytes);
  add_seed(verb, flags->seed)->description("seed of the weights (default: 0)");
  add_switch(verb, "--dry-run", flags->is_dry_run, "print names, shapes and bytes; write nothing");
  set_action(verb, invocation,
             [&invocation, flags] { return make_model(invocation.host, *flags); });
}

}  // namespace nibble::cli
