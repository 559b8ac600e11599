#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/bench_serve_flags.h"
#include "cli/bench_serve_format.h"
#include "cli/flags.h"
#include "cli/model_path.h"
#include "cli/verbs.h"
#include "client/load.h"
#include "text/tokenizer.h"

namespace nibble::cli {
namespace {

constexpr IntRange kTokens = {1, 1 << 24};

// The tokenizer that was named, or that of the model where it is in the local cache.
Result<std::optional<text::Tokenizer>> open_tokenizer(const Host& host, const ServeFlags& flags,
                                                      const std::string& model) {
  const std::string& name = flags.tokenizer.empty() ? model : flags.tokenizer;
  const Result<std::string> folder = find_model(name, model_places(host.executable));
  if (!folder && flags.tokenizer.empty()) {
    return std::optional<text::Tokenizer>();
  }
  if (!folder) {
    return error(Code::kNotFound, "--tokenizer: {}", folder.error().message());
  }
  Result<text::Tokenizer> tokenizer = text::Tokenizer::load(*folder);
  if (!tokenizer) {
    return tokenizer.error();
  }
  return std::optional<text::Tokenizer>(std::move(*tokenizer));
}

Result<std::vector<client::Prompt>> make_prompts(const Host& host, const ServeFlags& flags,
                                                 const text::Tokenizer* tokenizer) {
  const std::uint64_t seed = flags.seed.value_or(0);
  if (flags.dataset == "random") {
    client::RandomShape shape = flags.random;
    shape.range_ratio = flags.range_ratio.value_or(0.0F);
    return client::random_prompts(shape, flags.num_prompts, seed, tokenizer);
  }
  NIBBLE_ASSIGN_OR_RETURN(const std::string text, read_input(host, flags.dataset_path));
  if (flags.dataset == "sharegpt" && tokenizer == nullptr) {
    return error(Code::kInvalidArgument,
                 "--dataset-name sharegpt: want --tokenizer MODEL to measure lengths, found none");
  }
  Result<std::vector<client::Prompt>> prompts =
      flags.dataset == "custom" ? client::custom_prompts(text, flags.custom_output_len,
                                                         flags.num_prompts, seed, tokenizer)
                                : client::sharegpt_prompts(text, flags.sharegpt_output_len,
                                                           flags.num_prompts, seed, *tokenizer);
  if (!prompts) {
    return error(prompts.error().code(), "{}: {}", flags.dataset_path, prompts.error().message());
  }
  return prompts;
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &local)};
}

Status save(const ServeFlags& flags, const ServeRun& run, const std::string& json) {
  namespace fs = std::filesystem;
  const fs::path path =
      fs::path(flags.result_dir) /
      (flags.result_filename.empty() ? result_filename(run) : flags.result_filename);
  std::error_code fault;
  if (!flags.result_dir.empty()) {
    fs::create_directories(flags.result_dir, fault);
  }
  std::ofstream file(path, std::ios::binary);
  file << json;
  file.close();
  return file.good() ? Status() : error(Code::kInternal, "{}: cannot write", path.string());
}

Result<client::LoadResult> load_server(Host& host, const ServeJob& job,
                                       const std::vector<client::Prompt>& prompts,
                                       const text::Tokenizer* tokenizer) {
  return client::run_load(job.load, prompts, tokenizer, [&](std::int32_t num_ended) {
    if (host.err_is_terminal) {
      fmt::print(host.err, "\r{} of {} requests{}", num_ended, prompts.size(),
                 static_cast<std::size_t>(num_ended) == prompts.size() ? "\n" : "");
      std::fflush(host.err);
    }
  });
}

ServeRun describe(const ServeFlags& flags, const ServeJob& job, bool has_tokenizer) {
  const std::string& model = job.load.shape.model;
  return {.date = now_text(),
          .backend = job.load.shape.is_chat ? "openai-chat" : "openai",
          .label = flags.label,
          .model = model,
          .tokenizer = !has_tokenizer            ? ""
                       : flags.tokenizer.empty() ? model
                                                 : flags.tokenizer,
          .num_prompts = flags.num_prompts,
          .metadata = job.metadata,
          .request_rate = job.load.request_rate,
          .burstiness = job.load.burstiness,
          .max_concurrency = job.load.max_concurrency,
          .metrics = job.metrics,
          .has_goodput = job.goodput.is_set()};
}

Outcome conclude(Host& host, const ServeFlags& flags, const ServeRun& run, const ServeJob& job,
                 const client::LoadResult& result) {
  const client::LoadReport report =
      client::report_of(result.records, result.duration_s, job.percentiles, job.goodput);
  if (run.tokenizer.empty()) {
    host.out.write("No tokenizer: input tokens are the server's count, else words.\n");
  }
  host.out.write(serve_text(run, report));
  host.out.write(errors_text(result.records));
  if (flags.saves_result || flags.saves_details) {
    const Status saved =
        save(flags, run, serve_json(run, report, result.records, flags.saves_details));
    if (!saved.ok()) {
      return failed(saved, During::kRun);
    }
  }
  if (report.failed == 0) {
    return done();
  }
  const auto first = std::find_if(result.records.begin(), result.records.end(),
                                  [](const auto& record) { return !record.is_success; });
  return {Exit::kFailure, fmt::format("{} of {} requests failed; the first: {}", report.failed,
                                      result.records.size(), first->error)};
}

Outcome bench_serve(Host& host, const ServeFlags& flags) {
  Result<ServeJob> job = parse_job(flags);
  if (!job) {
    return wrong_usage(job.error().message());
  }
  std::string& model = job->load.shape.model;
  model = flags.model;
  if (model.empty()) {
    const Result<std::string> listed = client::model_of_server(job->load);
    if (!listed) {
      return {Exit::kFailure, listed.error().message()};
    }
    model = *listed;
  }
  const Result<std::optional<text::Tokenizer>> opened = open_tokenizer(host, flags, model);
  if (!opened) {
    return failed(opened.error(), During::kLoad);
  }
  const text::Tokenizer* tokenizer = opened->has_value() ? &**opened : nullptr;
  const Result<std::vector<client::Prompt>> prompts = make_prompts(host, flags, tokenizer);
  if (!prompts) {
    const Status& status = prompts.error();
    return status.code() == Code::kCorrupt ? Outcome{Exit::kFailure, status.message()}
                                           : failed(status, During::kRun);
  }
  const Result<client::LoadResult> result = load_server(host, *job, *prompts, tokenizer);
  if (!result) {
    return {Exit::kFailure, result.error().message()};
  }
  return conclude(host, flags, describe(flags, *job, tokenizer != nullptr), *job, *result);
}

void add_server_flags(CLI::App& verb, ServeFlags& flags) {
  const auto group = [](CLI::Option* option) { option->group("Server"); };
  group(add_text(verb, {"--base-url", "URL", "the server (default: http://127.0.0.1:8000)"},
                 flags.base_url));
  group(add_text(verb, {"-m,--model", "NAME", "model to ask for (default: the first one listed)"},
                 flags.model));
  group(add_choice(verb, {"--backend", "KIND", "openai (completions) or openai-chat"},
                   {"openai", "openai-chat"}, flags.backend));
  group(add_text(verb,
                 {"--endpoint", "PATH",
                  "/v1/completions (default) or /v1/chat/completions, whichever\nit ends in"},
                 flags.endpoint));
  group(add_text(verb, {"--api-key", "KEY", "sent as a bearer token"}, flags.api_key));
  group(add_texts(verb, {"--header", "NAME=VALUE", "sent with each request; may be repeated"},
                  flags.headers));
  group(add_text(verb,
                 {"--extra-body", "JSON", "members to add to each request: {\"temperature\": 0}"},
                 flags.extra_body));
  group(add_switch(verb, "--ignore-eos", flags.ignores_eos,
                   "ask for answers of full length, whatever ends them"));
  group(add_integer(verb, {"--timeout", "S", "seconds that a request may take (default: 21600)"},
                    {1, 1 << 24}, flags.timeout_s));
}

void add_workload_flags(CLI::App& verb, ServeFlags& flags) {
  const auto group = [](CLI::Option* option) { option->group("Prompts"); };
  group(add_choice(verb, {"--dataset-name", "NAME", "random (default), custom or sharegpt"},
                   {"random", "custom", "sharegpt"}, flags.dataset));
  group(add_text(verb,
                 {"--dataset-path", "FILE",
                  "custom: lines of {\"prompt\": TEXT, \"output_tokens\": N}\nsharegpt: its JSON"},
                 flags.dataset_path));
  group(add_text(verb,
                 {"--tokenizer", "MODEL",
                  "folder or name in the Hugging Face cache; makes lengths exact\n(default: the "
                  "model's, if it is there)"},
                 flags.tokenizer));
  group(add_integer(verb, {"--random-input-len,--input-len", "N", "tokens (default: 1024)"},
                    kTokens, flags.random.input_len));
  group(add_integer(verb, {"--random-output-len,--output-len", "N", "tokens (default: 128)"},
                    kTokens, flags.random.output_len));
  group(add_real(
      verb,
      {"--random-range-ratio", "R", "draw lengths from LEN (1 - R) to LEN (1 + R) (default: 0)"},
      {0, 1}, flags.range_ratio));
  group(add_integer(verb, {"--custom-output-len", "N", "where a line has none (default: 256)"},
                    kTokens, flags.custom_output_len));
  group(add_integer(verb,
                    {"--sharegpt-output-len", "N", "instead of the answer's length in the file"},
                    kTokens, flags.sharegpt_output_len));
  group(add_integer(verb, {"--num-prompts", "N", "requests (default: 1000)"}, {1, 1 << 24},
                    flags.num_prompts));
}

void add_traffic_flags(CLI::App& verb, ServeFlags& flags) {
  const auto group = [](CLI::Option* option) { option->group("Traffic"); };
  group(add_text(verb, {"--request-rate", "R", "arrivals a second; inf (default): all at once"},
                 flags.request_rate));
  group(add_text(
      verb,
      {"--burstiness", "B", "shape of the gaps: 1 (default) Poisson, below 1 bunches,\ninf even"},
      flags.burstiness));
  group(add_integer(verb,
                    {"--max-concurrency", "N", "requests that are open at once (default: all)"},
                    {1, 1 << 20}, flags.max_concurrency));
  group(add_integer(verb, {"--num-warmups", "N", "requests before the clock starts (default: 0)"},
                    {0, 1 << 20}, flags.num_warmups));
  group(add_seed(verb, flags.seed)->description("seed of prompts and arrivals (default: 0)"));
}

void add_result_flags(CLI::App& verb, ServeFlags& flags) {
  const auto group = [](CLI::Option* option) { option->group("Results"); };
  group(add_text(verb,
                 {"--percentile-metrics", "NAME,...",
                  "of ttft,tpot,itl,e2el (default: the first "
                  "three)"},
                 flags.metrics));
  group(add_text(verb, {"--metric-percentiles", "P,...", "default: 99"}, flags.percentiles));
  group(add_texts(verb,
                  {"--goodput", "NAME:MS...", "count requests within limits on ttft, tpot, e2el"},
                  flags.goodput)
            ->allow_extra_args(true));
  group(add_switch(verb, "--save-result", flags.saves_result, "write a JSON file"));
  group(add_switch(verb, "--save-detailed", flags.saves_details,
                   "write it with the values of every request"));
  group(add_text(verb, {"--result-dir", "DIR", "folder of that file"}, flags.result_dir));
  group(add_text(verb, {"--result-filename", "FILE", "its name (default: made from the run)"},
                 flags.result_filename));
  group(add_text(verb, {"--label", "TEXT", "begins the file's name"}, flags.label));
  group(add_texts(verb, {"--metadata", "KEY=VALUE", "kept in the file; may be repeated"},
                  flags.metadata));
}

}  // namespace

void add_bench_serve(CLI::App& app, Invocation& invocation) {
  CLI::App& verb = add_verb(
      app, {"bench-serve", "load a server that speaks OpenAI's API, and measure it",
            "  nibble bench-serve --num-prompts 100 --max-concurrency 8\n"
            "  nibble bench-serve --base-url http://127.0.0.1:8080 --backend openai-chat\n"
            "  nibble bench-serve --request-rate 4 --burstiness 0.5 --goodput ttft:500 tpot:50\n"
            "  nibble bench-serve --dataset-name custom --dataset-path prompts.jsonl\n"
            "  nibble bench-serve --save-result --result-dir results --label before\n"});
  auto flags = std::make_shared<ServeFlags>();
  add_server_flags(verb, *flags);
  add_workload_flags(verb, *flags);
  add_traffic_flags(verb, *flags);
  add_result_flags(verb, *flags);
  set_action(verb, invocation,
             [&invocation, flags] { return bench_serve(invocation.host, *flags); });
}

}  // namespace nibble::cli
