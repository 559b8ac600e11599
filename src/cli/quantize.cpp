#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace nibble::cli {
namespace {

using Json = nlohmann::ordered_json;
using commands::QuantizeReport;
using commands::QuantizeTensor;

struct QuantizeFlags {
  commands::QuantizeOptions options;
  bool is_json = false;
};

std::string as_json(const QuantizeReport& report) {
  Json tensors = Json::array();
  for (const QuantizeTensor& tensor : report.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"max_abs_error", tensor.max_abs_error},
                       {"rms_error", tensor.rms_error},
                       {"rms_value", tensor.rms_value},
                       {"num_saturated", tensor.num_saturated},
                       {"num_zeroed_blocks", tensor.num_zeroed_blocks}});
  }
  const Json json = {{"from", report.from},
                     {"to", report.to},
                     {"bytes_written", report.bytes_written},
                     {"num_resumed", report.num_resumed},
                     {"tensors", tensors}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string error_table(const QuantizeReport& report) {
  Table table({{"tensor"},
               {"largest error", Table::Align::kRight},
               {"rms error", Table::Align::kRight},
               {"of rms", Table::Align::kRight},
               {"saturated", Table::Align::kRight},
               {"blocks zeroed", Table::Align::kRight}});
  for (const QuantizeTensor& tensor : report.tensors) {
    const double part = tensor.rms_value > 0.0 ? tensor.rms_error / tensor.rms_value : 0.0;
    table.add_row({tensor.name, fmt::format("{:.3g}", tensor.max_abs_error),
                   fmt::format("{:.3g}", tensor.rms_error), fmt::format("{:.2f} %", 100.0 * part),
                   std::to_string(tensor.num_saturated), std::to_string(tensor.num_zeroed_blocks)});
  }
  return table.text();
}

Outcome quantize(Host& host, const QuantizeFlags& flags) {
  commands::QuantizeOptions options = flags.options;
  const Result<std::string> source = find_model(options.source, model_places(host.executable));
  if (!source) {
    return failed(source.error(), During::kLoad);
  }
  options.source = *source;
  const auto start = std::chrono::steady_clock::now();
  Progress progress(host.out, "converting");
  const InterruptGuard guard;  // Ctrl-C stops between pieces, so that the journal is whole
  clear_interrupt();
  const Result<QuantizeReport> report =
      host.backend.quantize(options, [&](std::int64_t bytes, std::int64_t total) {
        if (!flags.is_json) {
          progress.show(bytes, total);
        }
        return !is_interrupted();
      });
  progress.finish();
  if (!report) {
    return failed(report.error(), During::kLoad);
  }
  if (flags.is_json) {
    host.out.write(as_json(*report));
    return done();
  }
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  host.out.write(error_table(*report));
  host.out.write(fmt::format("\n{} to {}: wrote {}, {} in {:.1f} s", report->from, report->to,
                             options.destination, bytes_text(report->bytes_written), time.count()));
  host.out.write(report->num_resumed > 0
                     ? fmt::format("; {} tensors were there already\n", report->num_resumed)
                     : "\n");
  return done();
}

}  // namespace

void add_quantize(CLI::App& app, Invocation& invocation) {
  CLI::App& verb =
      add_verb(app, {"quantize", "a checkpoint with its experts in another form",
                     "  nibble quantize /data/tuned-bf16 /data/tuned --format mxfp4\n"
                     "  nibble quantize openai/gpt-oss-20b /data/20b-nvfp4 --format nvfp4\n"
                     "  nibble quantize openai/gpt-oss-20b /data/20b-bf16 --format bf16\n"
                     "The same command again goes on where an interrupted one stopped.\n"});
  auto flags = std::make_shared<QuantizeFlags>();
  commands::QuantizeOptions& options = flags->options;
  add_text(verb, {"SRC", "SRC", "folder, or name in the Hugging Face cache"}, options.source)
      ->required();
  add_text(verb, {"DST", "DST", "folder to create; empty, absent or interrupted"},
           options.destination)
      ->required();
  add_choice(verb, {"--format", "NAME", "form of the experts: mxfp4, nvfp4, bf16"},
             {"mxfp4", "nvfp4", "bf16"}, options.format)
      ->required();
  add_choice(verb,
             {"--scale-rounding", "RULE",
              "least-error (default), up, ocp (mxfp4 only), nearest (nvfp4 only)"},
             {"least-error", "up", "ocp", "nearest"}, options.scale_rounding);
  add_integer(verb, {"-t,--threads", "N", "worker threads (default: all processors)"}, {0, 4096},
              options.num_threads);
  add_count(verb, {"--max-shard-size", "BYTES", "split files above this (default: 5G)"},
            {1, std::numeric_limits<std::int64_t>::max()}, options.max_shard_bytes);
  add_switch(verb, "--json", flags->is_json, "print the errors as JSON, and no progress");
  set_action(verb, invocation, [&invocation, flags] { return quantize(invocation.host, *flags); });
}

}  // namespace nibble::cli
