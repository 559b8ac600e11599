#include "cli/bench_format.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "cli/parse.h"

#ifndef NIBBLE_VERSION
#error "the build defines NIBBLE_VERSION"
#endif

namespace nibble::cli {
namespace {

using Json = nlohmann::ordered_json;
using commands::BenchBaseline;
using commands::BenchComparison;
using commands::BenchRow;

// null for what could not be measured.
Json known(double value) { return value > 0.0 ? Json(value) : Json(nullptr); }

const char* verdict(const BenchComparison& comparison) {
  if (!comparison.has_baseline) {
    return "no baseline";
  }
  return comparison.is_slower ? "slower" : comparison.is_faster ? "faster" : "same";
}

std::vector<double> as_reals(const std::vector<std::int64_t>& values) {
  return {values.begin(), values.end()};
}

Json row_json(const BenchLine& line) {
  const BenchRow& row = line.row;
  const std::vector<double> ns = as_reals(row.samples_ns);
  Json json = {{"version", NIBBLE_VERSION},
               {"cpu_info", row.cpu_info},
               {"backends", row.backend()},
               {"model_filename", row.model.folder},
               {"model_type", row.model.type},
               {"model_size", row.model.size},
               {"model_n_params", row.model.n_params},
               {"n_batch", row.test.n_batch},
               {"n_ubatch", row.test.n_ubatch},
               {"n_threads", row.test.n_threads},
               {"type_k", row.kv_cache},
               {"type_v", row.kv_cache},
               {"n_prompt", row.test.n_prompt},
               {"n_gen", row.test.n_gen},
               {"n_depth", row.test.n_depth},
               {"test_time", row.test_time},
               {"avg_ns", std::llround(commands::mean_of(ns))},
               {"stddev_ns", std::llround(commands::deviation_of(ns))},
               {"avg_ts", row.avg_ts()},
               {"stddev_ts", row.stddev_ts()},
               {"samples_ns", row.samples_ns},
               {"samples_ts", row.samples_ts()},
               {"model", line.model},
               {"streams", row.test.streams},
               {"activation", row.activation},
               {"device", row.device},
               {"decode_path", row.decode_path},
               {"full", row.is_full},
               {"bytes_per_token", std::llround(row.bytes_per_token)},
               {"gb_s", row.gb_s()},
               {"bandwidth_fraction", known(row.bandwidth_fraction())},
               {"tflop_s", row.tflop_s()},
               {"peak_fraction", known(row.peak_fraction())},
               {"read_gb_s", known(row.rates.read / 1e9)},
               {"read_bytes", row.rates.read_bytes},
               {"peak_tflop_s", known(row.rates.peak / 1e12)},
               {"peak_isa", row.rates.peak_isa}};
  if (line.comparison) {
    const BenchComparison& comparison = *line.comparison;
    json["baseline_ts"] = known(comparison.baseline_ts);
    json["noise_ts"] = known(comparison.noise_ts);
    json["verdict"] = verdict(comparison);
  }
  return json;
}

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// Every field quoted, as llama-bench does; samples have no place in a cell.
std::string csv_line(const Json& json, bool is_header) {
  std::string text;
  for (const auto& [name, value] : json.items()) {
    if (value.is_array()) {
      continue;
    }
    std::string cell = is_header ? name : "";
    if (!is_header && !value.is_null()) {
      cell = value.is_string() ? value.get<std::string>() : dump(value, -1);
    }
    for (std::size_t at = 0; (at = cell.find('"', at)) != std::string::npos; at += 2) {
      cell.insert(at, 1, '"');
    }
    text += fmt::format("{}\"{}\"", text.empty() ? "" : ",", cell);
  }
  return text + "\n";
}

std::string percent(double fraction) {
  return fraction > 0.0 ? fmt::format("{:.1f} %", 100.0 * fraction) : "unknown";
}

bool differs(const std::vector<std::int32_t>& values, std::int32_t usual) {
  return values != std::vector<std::int32_t>{usual};
}

// An integer field of a row of a baseline.
Result<std::int32_t> count_field(const std::string& where, const nlohmann::json& row,
                                 const char* name) {
  const auto field = row.find(name);
  if (field == row.end() || !field->is_number_integer() || *field < 0 ||
      *field > std::numeric_limits<std::int32_t>::max()) {
    return error(Code::kCorrupt, "{}: want a whole number '{}', found {}", where, name,
                 field == row.end() ? "none" : field->dump());
  }
  return field->get<std::int32_t>();
}

// A field of some other type; `wanted` names it.
template <typename Value>
Result<Value> plain_field(const std::string& where, const nlohmann::json& row, const char* name,
                          const char* wanted) {
  const auto field = row.find(name);
  const bool is_wanted = field != row.end() &&
                         (std::is_same_v<Value, bool> ? field->is_boolean() : field->is_string());
  if (!is_wanted) {
    return error(Code::kCorrupt, "{}: want {} '{}', found {}", where, wanted, name,
                 field == row.end() ? "none" : field->dump());
  }
  return field->get<Value>();
}

Result<double> speed_field(const std::string& where, const nlohmann::json& row, const char* name) {
  const auto field = row.find(name);
  if (field == row.end() || !field->is_number() || !(field->get<double>() >= 0.0)) {
    return error(Code::kCorrupt, "{}: want a number '{}', found {}", where, name,
                 field == row.end() ? "none" : field->dump());
  }
  return field->get<double>();
}

Result<BenchBaseline> baseline_row(const std::string& where, const nlohmann::json& row) {
  if (!row.is_object() || !row.contains("model") || !row["model"].is_string()) {
    return error(Code::kCorrupt, "{}: want an object with a text 'model'", where);
  }
  BenchBaseline baseline{.model = row["model"].get<std::string>()};
  const std::pair<const char*, std::int32_t*> counts[] = {
      {"n_prompt", &baseline.test.n_prompt},   {"n_gen", &baseline.test.n_gen},
      {"n_depth", &baseline.test.n_depth},     {"streams", &baseline.test.streams},
      {"n_threads", &baseline.test.n_threads}, {"n_batch", &baseline.test.n_batch},
      {"n_ubatch", &baseline.test.n_ubatch}};
  for (const auto& [name, target] : counts) {
    NIBBLE_ASSIGN_OR_RETURN(*target, count_field(where, row, name));
  }
  NIBBLE_ASSIGN_OR_RETURN(baseline.backend,
                          plain_field<std::string>(where, row, "backends", "a text"));
  NIBBLE_ASSIGN_OR_RETURN(baseline.activation,
                          plain_field<std::string>(where, row, "activation", "a text"));
  NIBBLE_ASSIGN_OR_RETURN(baseline.kv_cache,
                          plain_field<std::string>(where, row, "type_k", "a text"));
  NIBBLE_ASSIGN_OR_RETURN(baseline.is_full,
                          plain_field<bool>(where, row, "full", "true or false in"));
  NIBBLE_ASSIGN_OR_RETURN(baseline.avg_ts, speed_field(where, row, "avg_ts"));
  NIBBLE_ASSIGN_OR_RETURN(baseline.stddev_ts, speed_field(where, row, "stddev_ts"));
  return baseline;
}

}  // namespace

BenchPrinter::BenchPrinter(std::string format, const commands::BenchOptions& options,
                           bool has_baseline)
    : format_(std::move(format)),
      has_baseline_(has_baseline),
      shows_batch_(differs(options.n_batch, 2048)),
      shows_ubatch_(differs(options.n_ubatch, 512)),
      shows_streams_(differs(options.streams, 1)),
      shows_activation_(options.activation != Activation::kBf16),
      shows_cache_(options.kv_cache != KvCacheType::kAuto) {
  columns_ = {
      {"model", 24, false}, {"size", 9}, {"params", 8}, {"backend", 7, false}, {"threads", 7}};
  if (shows_batch_) {
    columns_.push_back({"n_batch", 7});
  }
  if (shows_ubatch_) {
    columns_.push_back({"n_ubatch", 8});
  }
  if (shows_streams_) {
    columns_.push_back({"streams", 7});
  }
  if (shows_activation_) {
    columns_.push_back({"act", 4, false});
  }
  if (shows_cache_) {
    columns_.push_back({"type_k", 6, false});
  }
  columns_.insert(
      columns_.end(),
      {{"test", 15}, {"t/s", 17}, {"GB/s", 7}, {"of read", 7}, {"TFLOP/s", 7}, {"of peak", 7}});
  if (has_baseline_) {
    columns_.insert(columns_.end(), {{"baseline", 17}, {"verdict", 11, false}});
  }
}

std::string BenchPrinter::begin() const {
  if (format_ == "json") {
    return "[";
  }
  if (format_ != "md") {
    return "";
  }
  std::string titles = "|";
  std::string rule = "|";
  for (const Column& column : columns_) {
    titles += column.is_right ? fmt::format(" {:>{}} |", column.title, column.width)
                              : fmt::format(" {:<{}} |", column.title, column.width);
    rule += fmt::format(" {}{} |", std::string(column.width - 1, '-'), column.is_right ? ':' : '-');
  }
  return titles + "\n" + rule + "\n";
}

std::string BenchPrinter::row(const BenchLine& line) {
  const bool is_first = num_rows_++ == 0;
  if (format_ == "json") {
    return (is_first ? "\n" : ",\n") + dump(row_json(line), 2);
  }
  if (format_ == "jsonl") {
    return dump(row_json(line), -1) + "\n";
  }
  if (format_ == "csv") {
    const Json json = row_json(line);
    return (is_first ? csv_line(json, true) : "") + csv_line(json, false);
  }
  return table_row(line);
}

std::string BenchPrinter::table_row(const BenchLine& line) const {
  const BenchRow& row = line.row;
  std::vector<std::string> cells = {line.model + " " + row.model.type, bytes_text(row.model.size),
                                    count_text(row.model.n_params), row.backend(),
                                    std::to_string(row.test.n_threads)};
  if (shows_batch_) {
    cells.push_back(std::to_string(row.test.n_batch));
  }
  if (shows_ubatch_) {
    cells.push_back(std::to_string(row.test.n_ubatch));
  }
  if (shows_streams_) {
    cells.push_back(std::to_string(row.test.streams));
  }
  if (shows_activation_) {
    cells.push_back(row.activation);
  }
  if (shows_cache_) {
    cells.push_back(row.kv_cache);
  }
  cells.insert(cells.end(), {commands::test_name(row.test),
                             fmt::format("{:.2f} ± {:.2f}", row.avg_ts(), row.stddev_ts()),
                             fmt::format("{:.2f}", row.gb_s()), percent(row.bandwidth_fraction()),
                             fmt::format("{:.3g}", row.tflop_s()), percent(row.peak_fraction())});
  if (line.comparison) {
    const BenchComparison& comparison = *line.comparison;
    cells.push_back(comparison.has_baseline ? fmt::format("{:.2f} ± {:.2f}", comparison.baseline_ts,
                                                          comparison.noise_ts)
                                            : "");
    cells.emplace_back(verdict(comparison));
  }
  std::string text = "|";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    text += columns_[i].is_right ? fmt::format(" {:>{}} |", cells[i], columns_[i].width)
                                 : fmt::format(" {:<{}} |", cells[i], columns_[i].width);
  }
  return text + "\n";
}

std::string BenchPrinter::end() const { return format_ == "json" ? "\n]\n" : ""; }

Result<std::vector<BenchBaseline>> parse_baseline(const std::string& path, std::string_view json) {
  const nlohmann::json rows = nlohmann::json::parse(json, nullptr, false);
  if (!rows.is_array()) {
    return error(Code::kCorrupt, "{}: want a JSON list as -o json writes it, found {}", path,
                 rows.is_discarded() ? "no JSON" : rows.type_name());
  }
  std::vector<BenchBaseline> baselines;
  for (const nlohmann::json& row : rows) {
    const std::string where = fmt::format("{}: row {}", path, baselines.size());
    NIBBLE_ASSIGN_OR_RETURN(BenchBaseline baseline, baseline_row(where, row));
    baselines.push_back(std::move(baseline));
  }
  return baselines;
}

std::string comparison_text(const BenchLine& line) {
  const BenchComparison comparison = line.comparison.value_or(BenchComparison());
  return fmt::format("{}: {:.2f} tok/s, baseline {:.2f}, noise {:.2f}",
                     commands::test_name(line.row.test), line.row.avg_ts(), comparison.baseline_ts,
                     comparison.noise_ts);
}

}  // namespace nibble::cli
