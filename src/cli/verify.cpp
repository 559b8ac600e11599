#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace nibble::cli {
namespace {

using Json = nlohmann::ordered_json;
using commands::VerifyReport;
using commands::VerifyRow;

struct VerifyFlags {
  std::string model;
  std::string activation = "bf16";
  std::string kv_cache = "auto";
  std::string device = "auto";
  std::string load_format = "auto";
  std::optional<std::vector<std::int32_t>> ids;
  commands::VerifyOptions options;
  std::int64_t seed = 0;
  bool is_json = false;
};

std::string as_json(const VerifyReport& report) {
  Json rows = Json::array();
  for (const VerifyRow& row : report.rows) {
    rows.push_back({{"layer", row.layer},
                    {"block", row.block},
                    {"largest_difference", row.largest_difference},
                    {"at_row", row.at_row},
                    {"at_column", row.at_column},
                    {"relative_difference", row.relative_difference},
                    {"within_bound", row.is_within_bound}});
  }
  const Json json = {{"device", report.device},
                     {"activation", report.activation},
                     {"kv_cache", report.kv_cache},
                     {"num_tokens", report.num_tokens},
                     {"bound", report.bound},
                     {"ok", report.is_ok},
                     {"blocks", rows}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_text(const VerifyReport& report) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"layer", kRight},
               {"block"},
               {"largest difference", kRight},
               {"at row, column"},
               {"relative", kRight},
               {"of bound", kRight},
               {""}});
  for (const VerifyRow& row : report.rows) {
    table.add_row({std::to_string(row.layer), row.block,
                   fmt::format("{:.2e}", row.largest_difference),
                   fmt::format("{}, {}", row.at_row, row.at_column),
                   fmt::format("{:.2e}", row.relative_difference),
                   fmt::format("{:.1f} %", 100.0 * row.relative_difference / report.bound),
                   row.is_within_bound ? "" : "too large"});
  }
  return table.text() + fmt::format(
                            "\n{}\n{} tokens, {} activations, {} cache: {} blocks {} {:.2e} of the "
                            "reference\n",
                            report.device, report.num_tokens, report.activation, report.kv_cache,
                            report.rows.size(), report.is_ok ? "all within" : "not all within",
                            report.bound);
}

Outcome verify(Host& host, const VerifyFlags& flags) {
  const Result<std::string> folder = find_model(host, flags.model, load_format(flags.load_format));
  if (!folder) {
    return failed(folder.error(), During::kLoad);
  }
  commands::VerifyOptions options = flags.options;
  options.model = *folder;
  options.load_format = load_format(flags.load_format);
  options.activation = activation_of(flags.activation);
  options.kv_cache = kv_cache_of(flags.kv_cache);
  options.device = device_choice(flags.device);
  options.ids = flags.ids.value_or(std::vector<std::int32_t>());
  options.seed = static_cast<std::uint64_t>(flags.seed);
  const bool shows_steps = host.err_is_terminal && !flags.is_json;
  const auto progress = [&](std::int32_t done, std::int32_t total) {
    if (shows_steps) {
      fmt::print(host.err, "{} of {} passes done\n", done, total);
    }
  };
  const Result<VerifyReport> report = host.backend.verify(options, progress);
  if (!report) {
    return report.error().code() == Code::kInvalidArgument
               ? wrong_usage(report.error().message())
               : failed_to_load(host, report.error(), options.device);
  }
  host.out.write(flags.is_json ? as_json(*report) : as_text(*report));
  if (!report->is_ok) {
    return {Exit::kFailure, fmt::format("{}: kernels differ from the reference by more than {:.2e}",
                                        *folder, report->bound)};
  }
  return done();
}

}  // namespace

void add_verify(CLI::App& app, Invocation& invocation) {
  CLI::App& verb =
      add_verb(app, {"verify", "this machine's kernels beside the scalar reference, block by block",
                     "  nibble verify                          the demo model\n"
                     "  nibble verify MODEL --tokens 64        more rows\n"
                     "  nibble verify MODEL --activation f32   without rounding of activations\n"
                     "  nibble verify MODEL --json\n"
                     "Exit code 1 when a block differs by more than the bound.\n"});
  auto flags = std::make_shared<VerifyFlags>();
  add_model_name(verb, flags->model);
  add_integer(verb, {"--tokens", "N", "random tokens to run (default: 16)"}, {1, 65536},
              flags->options.num_tokens);
  add_ids(verb, flags->ids, "run these token ids instead");
  add_count(verb, {"--seed", "N", "seed of the random tokens (default: 0)"},
            {0, std::numeric_limits<std::int64_t>::max()}, flags->seed);
  add_activation(verb, flags->activation);
  add_kv_cache(verb, flags->kv_cache);
  add_device(verb, flags->device);
  add_load_format(verb, flags->load_format);
  add_integer(verb, {"-t,--threads", "N", "worker threads (default: all processors)"}, {0, 4096},
              flags->options.num_threads);
  add_switch(verb, "--json", flags->is_json, "print the report as JSON");
  set_action(verb, invocation, [&invocation, flags] { return verify(invocation.host, *flags); });
}

}  // namespace nibble::cli
