#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>

#include "base/error.h"
#include "cli/bench_format.h"
#include "cli/bench_plot.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/parse.h"
#include "cli/verbs.h"

namespace nibble::cli {
namespace {

using commands::BenchOptions;
using commands::BenchRow;

struct BenchFlags {
  std::string model;
  // Lists as typed: "512,1024".
  std::string n_prompt = "512";
  std::string n_gen = "128";
  std::vector<std::string> prompt_gen;
  std::string n_depth = "0";
  std::string streams = "1";
  std::string n_batch = "2048";
  std::string n_ubatch = "512";
  std::string n_threads = "0";
  std::string activation = "bf16";
  std::string kv_cache = "auto";
  std::string device = "auto";
  std::string load_format = "auto";
  std::string decode_path = "auto";
  std::string format = "md";
  std::string baseline;
  std::string plot;
  bool skips_warmup = false;
  BenchOptions options;
};

Result<std::vector<std::int32_t>> parse_counts(const char* flag, std::string_view text,
                                               IntRange range) {
  std::vector<std::int32_t> counts;
  while (true) {
    const std::size_t comma = text.find(',');
    const Result<std::int64_t> count = parse_count(text.substr(0, comma), range);
    if (!count) {
      return error(Code::kInvalidArgument, "{}: {}", flag, count.error().message());
    }
    counts.push_back(static_cast<std::int32_t>(*count));
    if (comma == std::string_view::npos) {
      return counts;
    }
    text.remove_prefix(comma + 1);
  }
}

// Fills the lists of the options.
Status parse_lists(const BenchFlags& flags, BenchOptions& options) {
  constexpr IntRange kTokens = {0, 1 << 24};
  constexpr IntRange kRows = {1, 1 << 20};
  NIBBLE_ASSIGN_OR_RETURN(options.n_prompt, parse_counts("--n-prompt", flags.n_prompt, kTokens));
  NIBBLE_ASSIGN_OR_RETURN(options.n_gen, parse_counts("--n-gen", flags.n_gen, kTokens));
  NIBBLE_ASSIGN_OR_RETURN(options.n_depth, parse_counts("--n-depth", flags.n_depth, kTokens));
  NIBBLE_ASSIGN_OR_RETURN(options.streams, parse_counts("--streams", flags.streams, {1, 65536}));
  NIBBLE_ASSIGN_OR_RETURN(options.n_batch, parse_counts("--batch-size", flags.n_batch, kRows));
  NIBBLE_ASSIGN_OR_RETURN(options.n_ubatch, parse_counts("--ubatch-size", flags.n_ubatch, kRows));
  NIBBLE_ASSIGN_OR_RETURN(options.n_threads, parse_counts("--threads", flags.n_threads, {0, 4096}));
  for (const std::string& text : flags.prompt_gen) {
    NIBBLE_ASSIGN_OR_RETURN(const std::vector<std::int32_t> pair,
                            parse_counts("--prompt-gen", text, {1, 1 << 24}));
    if (pair.size() != 2) {
      return error(Code::kInvalidArgument, "--prompt-gen: want P,N, found '{:.40}'", text);
    }
    options.prompt_gen.emplace_back(pair[0], pair[1]);
  }
  return {};
}

// What the rows call the model: the name that was typed, or the folder's.
std::string model_name(const std::string& typed, const std::string& folder) {
  std::error_code fault;
  if (!typed.empty() && !std::filesystem::is_directory(typed, fault)) {
    return typed;
  }
  const std::filesystem::path path = std::filesystem::weakly_canonical(folder, fault);
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

Result<std::string> find_subject(const Host& host, const std::string& name, LoadFormat format) {
  Result<std::string> folder = find_model(host, name, format);
  if (folder) {
    return folder;
  }
  const std::vector<std::string> presets = host.backend.preset_names();
  if (std::find(presets.begin(), presets.end(), name) != presets.end()) {
    return error(Code::kNotFound,
                 "{0} is a shape without files here: --load-format dummy takes random weights, "
                 "`nibble make-model --preset {0} DST` writes them, then bench DST",
                 name);
  }
  return folder;
}

Status write_plot(const std::string& path, const std::vector<BenchLine>& lines) {
  std::ofstream file(path, std::ios::binary);
  file << bench_svg(lines);
  file.close();
  return file.good() ? Status() : error(Code::kInternal, "{}: cannot write the plot", path);
}

Outcome verdict(const std::vector<BenchLine>& lines, const std::string& path) {
  int num_compared = 0;
  int num_slower = 0;
  const BenchLine* first_slower = nullptr;
  for (const BenchLine& line : lines) {
    num_compared += line.comparison->has_baseline ? 1 : 0;
    if (line.comparison->is_slower) {
      first_slower = num_slower++ == 0 ? &line : first_slower;
    }
  }
  if (num_compared == 0) {
    return wrong_usage(fmt::format(
        "--baseline {}: want a row of the same model, counts, depth, streams, threads, backend and "
        "activations, found none for {} measured",
        path, lines.size()));
  }
  if (first_slower != nullptr) {
    return {Exit::kRegression, fmt::format("{} of {} tests slower than {}: {}", num_slower,
                                           num_compared, path, comparison_text(*first_slower))};
  }
  return done();
}

void write_note(Host& host, const BenchFlags& flags, const std::vector<BenchLine>& lines) {
  if (flags.format != "md" || lines.empty()) {
    return;
  }
  const BenchRow& row = lines.front().row;
  host.out.write(fmt::format("\n{}; {}, {} activations; {}\n", row.cpu_info, row.device,
                             row.activation,
                             row.is_full ? "tokenising and sampling included"
                                         : "tokenising and sampling excluded (--full has them)"));
  std::int32_t num_threads = 0;
  for (const BenchLine& line : lines) {
    if (line.row.test.n_threads == num_threads) {
      continue;
    }
    num_threads = line.row.test.n_threads;
    const commands::BenchRates& rates = line.row.rates;
    host.out.write(
        fmt::format("{} just before: {:.1f} GB/s read of {}, {:.3g} TFLOP/s {}\n",
                    line.row.is_on_gpu() ? "the GPU" : fmt::format("{} threads", num_threads),
                    rates.read / 1e9, bytes_text(rates.read_bytes), rates.peak / 1e12,
                    rates.peak_isa.empty() ? "(unknown)" : rates.peak_isa));
  }
}

// Measures and prints row by row.
Status measure(Host& host, const BenchFlags& flags, const BenchOptions& options,
               const std::optional<std::vector<commands::BenchBaseline>>& baselines,
               std::vector<BenchLine>& lines) {
  const std::string name = model_name(flags.model, options.model);
  BenchPrinter printer(flags.format, options, baselines.has_value());
  const InterruptGuard guard;  // Ctrl-C ends after a row, so that what was measured is whole
  clear_interrupt();
  host.out.write(printer.begin());
  Status status = host.backend.bench(options, [&](const BenchRow& row) {
    BenchLine line{row, name, std::nullopt};
    if (baselines) {
      line.comparison = commands::compare(row, name, *baselines);
    }
    host.out.write(printer.row(line));
    host.out.flush();
    lines.push_back(std::move(line));
    return !is_interrupted() && host.out.is_open();
  });
  host.out.write(printer.end());
  return status;
}

Outcome bench(Host& host, const BenchFlags& flags) {
  BenchOptions options = flags.options;
  if (const Status status = parse_lists(flags, options); !status.ok()) {
    return wrong_usage(status.message());
  }
  const Result<std::string> folder =
      find_subject(host, flags.model, load_format(flags.load_format));
  if (!folder) {
    return failed(folder.error(), During::kLoad);
  }
  options.model = *folder;
  options.load_format = load_format(flags.load_format);
  options.activation = activation_of(flags.activation);
  options.kv_cache = kv_cache_of(flags.kv_cache);
  options.device = device_choice(flags.device);
  options.decode_path = decode_path_of(flags.decode_path);
  options.has_warmup = !flags.skips_warmup;
  std::optional<std::vector<commands::BenchBaseline>> baselines;
  if (!flags.baseline.empty()) {
    const Result<std::string> text = read_input(host, flags.baseline);
    if (!text) {
      return failed(text.error(), During::kRun);
    }
    const auto parsed = parse_baseline(flags.baseline, *text);
    if (!parsed) {
      return {Exit::kFailure, parsed.error().message()};
    }
    baselines = *parsed;
  }
  std::vector<BenchLine> lines;
  const Status status = measure(host, flags, options, baselines, lines);
  if (!status.ok()) {
    return failed_to_load(host, status, options.device);
  }
  write_note(host, flags, lines);
  if (!flags.plot.empty()) {
    const Status written = write_plot(flags.plot, lines);
    if (!written.ok()) {
      return failed(written, During::kRun);
    }
  }
  return baselines ? verdict(lines, flags.baseline) : done();
}

void add_test_flags(CLI::App& verb, BenchFlags& flags) {
  add_text(verb, {"-p,--n-prompt", "N,...", "tokens of a prompt, computed together (default: 512)"},
           flags.n_prompt);
  add_text(verb, {"-n,--n-gen", "N,...", "tokens generated one after the other (default: 128)"},
           flags.n_gen);
  add_texts(verb, {"--prompt-gen", "P,N", "-pg: a prompt and a generation, timed together"},
            flags.prompt_gen);
  add_text(verb, {"-d,--n-depth", "N,...", "tokens in the cache beforehand (default: 0)"},
           flags.n_depth);
  add_text(verb, {"--streams", "N,...", "sequences computed together (default: 1)"}, flags.streams);
  add_text(verb, {"-b,--batch-size", "N,...", "rows handed over together (default: 2048)"},
           flags.n_batch);
  add_text(verb, {"--ubatch-size", "N,...", "-ub: rows of one step (default: 512)"},
           flags.n_ubatch);
  add_text(verb, {"-t,--threads", "N,...", "worker threads (default: all processors)"},
           flags.n_threads);
  add_integer(verb, {"-r,--repetitions", "N", "runs of each test (default: 5)"}, {1, 100000},
              flags.options.repetitions);
  add_device(verb, flags.device);
  add_load_format(verb, flags.load_format);
  add_activation(verb, flags.activation);
  add_kv_cache(verb, flags.kv_cache);
  add_decode_path(verb, flags.decode_path);
  add_switch(verb, "--no-warmup", flags.skips_warmup, "time the first run too");
  add_switch(verb, "--full", flags.options.is_full,
             "through the engine, with tokenising and sampling; at depth 0");
}

}  // namespace

void add_bench(CLI::App& app, Invocation& invocation) {
  CLI::App& verb = add_verb(
      app, {"bench", "prompt and generation speed, as parts of the machine's limits",
            "  nibble bench                               the demo model: pp512 and tg128\n"
            "  nibble bench MODEL -p 0 -n 128 -d 0,4096   generation at two depths\n"
            "  nibble bench MODEL -pg 512,128 -t 1,2      both together, with 1 and 2 threads\n"
            "  nibble bench MODEL -p 0 --streams 1,8,64   many sequences at once\n"
            "  nibble bench gpt-oss-120b --load-format dummy   random weights, no files\n"
            "  nibble bench MODEL -o json > before.json   and later, exit code 8 when slower:\n"
            "  nibble bench MODEL --baseline before.json\n"});
  auto flags = std::make_shared<BenchFlags>();
  add_model_name(verb, flags->model);
  add_test_flags(verb, *flags);
  add_choice(verb, {"-o,--output", "FORMAT", "md (default), json, jsonl or csv"},
             {"md", "json", "jsonl", "csv"}, flags->format)
      ->group("Output");
  add_text(verb, {"--baseline", "FILE", "compare with what -o json wrote before"}, flags->baseline)
      ->group("Output");
  add_text(verb, {"--plot", "FILE.svg", "draw speed against depth and batch"}, flags->plot)
      ->group("Output");
  set_action(verb, invocation, [&invocation, flags] { return bench(invocation.host, *flags); });
}

}  // namespace nibble::cli
