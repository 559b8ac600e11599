#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "cli/model_path.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace nibble::cli {
namespace {

using Json = nlohmann::ordered_json;
using commands::PlanReport;
using commands::PlanRow;

struct PlanFlags {
  std::string model;
  std::string archs;
  std::string tokens;
  std::int32_t tensor_parallel = 1;
  bool is_deterministic = false;
  bool is_json = false;
};

std::string as_json(const PlanReport& report) {
  Json rows = Json::array();
  for (const PlanRow& row : report.rows) {
    rows.push_back({{"arch", row.arch},
                    {"op", row.op},
                    {"tokens", row.tokens},
                    {"n", row.n},
                    {"k", row.k},
                    {"form", row.form},
                    {"block_m", row.block_m},
                    {"block_n", row.block_n},
                    {"block_k", row.block_k},
                    {"num_warps", row.num_warps},
                    {"num_stages", row.num_stages},
                    {"split_k", row.split_k},
                    {"persistent", row.is_persistent},
                    {"layout", row.layout},
                    {"padded_n", row.padded_n},
                    {"padded_k", row.padded_k},
                    {"shared_bytes", row.shared_bytes},
                    {"grid", row.grid},
                    {"verified", row.verified},
                    {"reason", row.reason}});
  }
  return rows.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string plan_table(const PlanReport& report) {
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"row", kRight},
               {"arch"},
               {"tokens", kRight},
               {"op"},
               {"form"},
               {"tile m x n x k"},
               {"warps", kRight},
               {"stages", kRight},
               {"split", kRight},
               {"persistent"},
               {"layout"},
               {"stored n x k"},
               {"shared", kRight},
               {"blocks", kRight},
               {""}});
  std::size_t number = 0;
  for (const PlanRow& row : report.rows) {
    table.add_row({std::to_string(++number), row.arch, std::to_string(row.tokens), row.op, row.form,
                   fmt::format("{} x {} x {}", row.block_m, row.block_n, row.block_k),
                   std::to_string(row.num_warps), std::to_string(row.num_stages),
                   std::to_string(row.split_k), row.is_persistent ? "yes" : "no", row.layout,
                   fmt::format("{} x {}", row.padded_n, row.padded_k),
                   std::to_string(row.shared_bytes), std::to_string(row.grid),
                   row.verified ? "verified" : "unverified"});
  }
  return table.text();
}

// "1-3, 7"
std::string ranges_text(const std::vector<std::size_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) {
      ++end;
    }
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
    text += end - i > 1 ? fmt::format("-{}", numbers[end - 1]) : "";
    i = end;
  }
  return text;
}

// Each rule once, with the rows that it decided.
std::string rule_table(const PlanReport& report) {
  std::vector<std::pair<std::string, std::string>> rules;
  std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> rows;
  for (std::size_t i = 0; i < report.rows.size(); ++i) {
    for (const auto& rule : report.rows[i].rules) {
      if (rows[rule].empty()) {
        rules.push_back(rule);
      }
      rows[rule].push_back(i + 1);
    }
  }
  // By field, in the order in which a row lists its fields.
  std::stable_sort(rules.begin(), rules.end(), [&](const auto& a, const auto& b) {
    const auto& order = report.rows.front().rules;
    const auto place = [&](const std::string& field) {
      return std::find_if(order.begin(), order.end(),
                          [&](const auto& rule) { return rule.first == field; });
    };
    return place(a.first) < place(b.first);
  });
  Table table({{"field"}, {"rule"}, {"rows"}});
  for (const auto& rule : rules) {
    table.add_row({rule.first, rule.second, ranges_text(rows[rule])});
  }
  return table.text();
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::string part;
  for (const char c : text + ",") {
    if (c != ',' && c != ' ') {
      part += c;
    } else if (!part.empty()) {
      parts.push_back(std::move(part));
      part.clear();
    }
  }
  return parts;
}

Outcome fill(const Host& host, const PlanFlags& flags, commands::PlanOptions& options) {
  options.archs = split(flags.archs);
  options.tensor_parallel = flags.tensor_parallel;
  options.is_deterministic = flags.is_deterministic;
  for (const std::string& part : split(flags.tokens)) {
    const Result<std::int64_t> count = parse_count(part, {1, std::int64_t{1} << 24});
    if (!count) {
      return wrong_usage("--tokens: " + count.error().message());
    }
    options.tokens.push_back(*count);
  }
  const std::vector<std::string> presets = host.backend.preset_names();
  options.model = flags.model;
  if (std::find(presets.begin(), presets.end(), flags.model) == presets.end()) {
    Result<std::string> folder = find_model(flags.model, model_places(host.executable));
    if (!folder) {
      return failed(folder.error(), During::kLoad);
    }
    options.model = std::move(*folder);
  }
  return done();
}

Outcome plan(Host& host, const PlanFlags& flags) {
  commands::PlanOptions options;
  if (Outcome outcome = fill(host, flags, options); !outcome.is_done()) {
    return outcome;
  }
  const Result<PlanReport> report = host.backend.plan(options);
  if (!report) {
    switch (report.error().code()) {
      case Code::kInvalidArgument: return wrong_usage(report.error().message());
      case Code::kUnsupported: return failed(report.error(), During::kHardware);
      default: return failed(report.error(), During::kLoad);
    }
  }
  for (const std::string& warning : report->warnings) {
    fmt::print(host.err, "nibble plan: {}\n", warning);
  }
  host.out.write(flags.is_json ? as_json(*report)
                               : plan_table(*report) + "\n" + rule_table(*report));
  return done();
}

}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  CLI::App& verb = add_verb(
      app, {"plan", "how every matrix product would be launched, and why",
            "  nibble plan                                    the demo model, everywhere\n"
            "  nibble plan gpt-oss-120b --arch sm_120         a published shape, no files needed\n"
            "  nibble plan MODEL --tokens 1,64,8192 -tp 2     what rank 0 of 2 runs\n"
            "  nibble plan MODEL --json | jq '.[] | select(.op == \"moe_down\")'\n"});
  auto flags = std::make_shared<PlanFlags>();
  add_model_name(verb, flags->model);
  add_text(verb, {"--arch", "NAMES", "cpu, sm_90, sm_100, sm_120, with commas (default: all)"},
           flags->archs);
  add_text(verb, {"--tokens", "COUNTS", "rows of a step, with commas (default: 1,64,8192)"},
           flags->tokens);
  add_integer(verb,
              {"--tensor-parallel-size", "N", "ranks that share the model; also -tp (default: 1)"},
              {1, 4096}, flags->tensor_parallel);
  add_switch(verb, "--deterministic", flags->is_deterministic,
             "plan so that no row depends on its batch");
  add_switch(verb, "--json", flags->is_json, "a list of rows")->group("Output");
  set_action(verb, invocation, [&invocation, flags] { return plan(invocation.host, *flags); });
}

}  // namespace nibble::cli
