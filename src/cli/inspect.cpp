#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "cli/kernel_list.h"
#include "cli/model_path.h"
#include "cli/table.h"
#include "cli/verbs.h"

namespace nibble::cli {
namespace {

using Json = nlohmann::ordered_json;
using commands::InspectReport;
using commands::InspectTensor;

struct InspectFlags {
  std::string model;
  bool lists_tensors = false;
  bool lists_kernels = false;
  bool is_json = false;
};

std::string as_json(const InspectReport& report) {
  Json config = Json::object();
  for (const auto& [name, value] : report.config) {
    config[name] = value;
  }
  Json tensors = Json::array();
  for (const InspectTensor& tensor : report.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes},
                       {"file", tensor.file}});
  }
  const Json json = {{"folder", report.folder},
                     {"architecture", report.architecture},
                     {"naming", report.naming},
                     {"quantisation", report.quantisation},
                     {"parameters", report.parameters},
                     {"active_parameters", report.active_parameters},
                     {"file_bytes", report.file_bytes},
                     {"expert_bytes", report.expert_bytes},
                     {"dense_bytes", report.dense_bytes},
                     {"config", config},
                     {"tensors", tensors},
                     {"problems", report.problems}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// "model.layers.12.mlp" -> "model.layers.*.mlp"
std::string without_numbers(const std::string& name) {
  std::string pattern;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(name[i])) != 0;
    const bool begins = i == 0 || name[i - 1] == '.';
    std::size_t end = i;
    while (begins && end < name.size() && std::isdigit(static_cast<unsigned char>(name[end]))) {
      ++end;
    }
    if (is_digit && begins && (end == name.size() || name[end] == '.')) {
      pattern += '*';
      i = end - 1;
    } else {
      pattern += name[i];
    }
  }
  return pattern;
}

// Tensors that differ only in their layer's number share a row, unless all are wanted.
std::string tensor_table(const InspectReport& report, bool lists_all) {
  struct Row {
    InspectTensor tensor;
    std::int64_t count = 0;
  };
  std::vector<Row> rows;
  for (const InspectTensor& tensor : report.tensors) {
    InspectTensor named = tensor;
    named.name = lists_all ? tensor.name : without_numbers(tensor.name);
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      return !lists_all && row.tensor.name == named.name && row.tensor.dtype == named.dtype &&
             row.tensor.shape == named.shape;
    });
    Row& row = same != rows.end() ? *same : rows.emplace_back(Row{named, 0});
    row.tensor.bytes += row.count == 0 ? 0 : tensor.bytes;
    ++row.count;
  }
  Table table({{"tensor"}, {"type"}, {"shape"}, {"bytes", Table::Align::kRight}});
  table.add_column(lists_all ? Table::Column{"file"}
                             : Table::Column{"count", Table::Align::kRight});
  for (const Row& row : rows) {
    table.add_row({row.tensor.name, row.tensor.dtype, row.tensor.shape,
                   bytes_text(row.tensor.bytes),
                   lists_all ? row.tensor.file : std::to_string(row.count)});
  }
  return table.text();
}

std::string as_text(const InspectReport& report, bool lists_all) {
  Table facts({{""}, {""}});
  const auto fact = [&](const char* name, const std::string& value) {
    if (!value.empty()) {
      facts.add_row({name, value});
    }
  };
  fact("folder", report.folder);
  fact("architecture", report.architecture);
  fact("naming", report.naming);
  fact("quantisation", report.quantisation);
  fact("parameters", fmt::format("{} ({} for each token)", count_text(report.parameters),
                                 count_text(report.active_parameters)));
  fact("size", fmt::format("{} (experts {}, dense {})", bytes_text(report.file_bytes),
                           bytes_text(report.expert_bytes), bytes_text(report.dense_bytes)));
  std::string text = facts.text();
  Table config({{""}, {""}});
  for (const auto& [name, value] : report.config) {
    config.add_row({name, value});
  }
  text += report.config.empty() ? "" : "\n" + config.text();
  text += report.tensors.empty() ? "" : "\n" + tensor_table(report, lists_all);
  text += report.problems.empty() ? "\nno problems\n"
                                  : fmt::format("\n{} problems\n", report.problems.size());
  for (const std::string& problem : report.problems) {
    text += "  " + problem + "\n";
  }
  return text;
}

std::string kernel_table(const std::vector<KernelCapability>& kernels) {
  Table table({{"family"}, {"kernel"}, {"backend"}, {"needs"}, {"runs here"}, {"verified"}});
  for (const KernelCapability& kernel : kernels) {
    table.add_row({kernel.family, kernel.name, kernel.backend, kernel.needs,
                   kernel.is_runnable ? "yes" : "no", kernel.is_verified ? "yes" : "no"});
  }
  return table.text();
}

Outcome inspect_kernels(Host& host, const InspectFlags& flags) {
  if (!flags.model.empty() || flags.lists_tensors) {
    return wrong_usage(fmt::format("--kernels is about this build and takes no {}, got {}",
                                   flags.model.empty() ? "other list" : "model",
                                   flags.model.empty() ? "--tensors" : flags.model));
  }
  const std::vector<KernelCapability> kernels = host.backend.capabilities().kernels;
  host.out.write(flags.is_json ? kernel_list(kernels).dump(2) + "\n" : kernel_table(kernels));
  return done();
}

Outcome inspect(Host& host, const InspectFlags& flags) {
  if (flags.lists_kernels) {
    return inspect_kernels(host, flags);
  }
  const Result<std::string> folder = find_model(flags.model, model_places(host.executable));
  if (!folder) {
    return failed(folder.error(), During::kLoad);
  }
  const Result<InspectReport> report = host.backend.inspect(*folder);
  if (!report) {
    return failed(report.error(), During::kLoad);
  }
  host.out.write(flags.is_json ? as_json(*report) : as_text(*report, flags.lists_tensors));
  if (report->problems.empty()) {
    return done();
  }
  const std::size_t count = report->problems.size();
  return {Exit::kModel, count == 1 ? fmt::format("{}: {}", *folder, report->problems.front())
                                   : fmt::format("{}: {} problems, listed above; the first: {}",
                                                 *folder, count, report->problems.front())};
}

}  // namespace

void add_inspect(CLI::App& app, Invocation& invocation) {
  CLI::App& verb =
      add_verb(app, {"inspect", "what a checkpoint holds and what is wrong with it",
                     "  nibble inspect                       the demo model\n"
                     "  nibble inspect openai/gpt-oss-20b    needs no tokenizer\n"
                     "  nibble inspect MODEL --tensors       every tensor and its file\n"
                     "  nibble inspect MODEL --json | jq .problems\n"
                     "  nibble inspect --kernels             which kernels run here\n"});
  auto flags = std::make_shared<InspectFlags>();
  add_model_name(verb, flags->model);
  add_switch(verb, "--tensors", flags->lists_tensors, "list every tensor by itself")
      ->group("Output");
  add_switch(verb, "--kernels", flags->lists_kernels, "list the kernels of this build instead")
      ->group("Output");
  add_switch(verb, "--json", flags->is_json, "one JSON object with everything")->group("Output");
  set_action(verb, invocation, [&invocation, flags] { return inspect(invocation.host, *flags); });
}

}  // namespace nibble::cli
