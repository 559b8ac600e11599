#include "api/commands/bench.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <memory>
#include <numeric>
#include <span>
#include <utility>

#include "api/activation.h"
#include "api/commands/bench_runner.h"
#include "api/commands/bench_steps.h"
#include "api/commands/inspect.h"
#include "api/device_choice.h"
#include "api/model_source.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/probe/device_probe.h"
#include "kernels/probe/probe.h"
#include "model/config.h"
#include "model/tensor_list.h"
#include "tensor/device.h"
#include "tensor/machine_facts.h"

namespace nibble::commands {
namespace {

// Part of the baseline that no deviation within a run shows: frequency, placement of pages.
constexpr double kLeastNoise = 0.02;

// What all rows share.
struct Subject {
  ModelSource source;
  BenchModel model;
  TokenCost token;
  MachineFacts machine;
};

// As `inspect` reports it of files.
BenchModel dummy_model(const ModelSource& source) {
  BenchModel out{.folder = source.name,
                 .type = fmt::format("{} mxfp4 dummy", source.config.architecture),
                 .size = source.weight_bytes()};
  for (const weights::TensorSpec& spec :
       model::tensor_list(source.config, model::ExpertFormat::kMxfp4)) {
    const TensorView view{nullptr, spec.dtypes.front(), spec.shape};
    const bool is_scales = spec.name.ends_with("_scales");
    out.n_params += is_scales ? 0 : view.num_elems() * (view.dtype == DType::kU8 ? 2 : 1);
  }
  return out;
}

Result<BenchModel> file_model(const std::string& folder, model::ExpertFormat& experts) {
  NIBBLE_ASSIGN_OR_RETURN(const InspectReport report, inspect(folder));
  if (!report.problems.empty()) {
    return error(Code::kCorrupt, "{}", report.problems.front());
  }
  experts = report.experts;
  return BenchModel{folder,
                    fmt::format("{} {}", report.architecture, expert_format_name(report.experts)),
                    report.file_bytes, report.parameters};
}

Result<Subject> subject_of(const BenchOptions& options) {
  Subject subject;
  NIBBLE_ASSIGN_OR_RETURN(subject.source, find_source(options.model, options.load_format));
  model::ExpertFormat experts = model::ExpertFormat::kMxfp4;
  if (subject.source.is_dummy()) {
    subject.model = dummy_model(subject.source);
  } else {
    NIBBLE_ASSIGN_OR_RETURN(subject.model, file_model(options.model, experts));
  }
  subject.token = token_cost(subject.source.config, experts);
  probe_host(subject.machine);
  return subject;
}

Status check_test(const BenchTest& test, const BenchOptions& options,
                  const model::ModelConfig& config) {
  const std::int64_t length = std::int64_t{test.n_depth} + test.n_prompt + test.n_gen;
  if (length > config.max_position) {
    return error(Code::kInvalidArgument, "{}: want {} positions, the model has {}", test_name(test),
                 length, config.max_position);
  }
  if (options.is_full && test.n_depth > 0) {
    return error(
        Code::kInvalidArgument,
        "{}: --full measures at depth 0, found {}; -pg {},{} times a prompt of that length",
        test_name(test), test.n_depth, test.n_depth, std::max(1, test.n_gen));
  }
  if (options.is_full && test.streams > std::min(test.n_batch, test.n_ubatch)) {
    return error(Code::kInvalidArgument,
                 "{}: --full wants a row of a step for each of {} streams, "
                 "found {} rows",
                 test_name(test), test.streams, std::min(test.n_batch, test.n_ubatch));
  }
  return {};
}

// A buffer as large as the weights: a small model is read from the caches, and so is the buffer.
BenchRates measure_rates(const BenchTest& test, const BenchOptions& options,
                         const Subject& subject) {
  ThreadPool pool(test.n_threads);
  BenchRates rates;
  rates.read_bytes =
      std::clamp<std::int64_t>(std::min(subject.model.size, subject.machine.available_bytes / 4),
                               1 << 20, std::int64_t{1} << 31);
  rates.read = kernels::read_bandwidth(pool, rates.read_bytes);
  std::vector<kernels::CpuIsa> candidates = {kernels::best_f32_isa(subject.machine.cpu)};
  if (options.activation != Activation::kF32) {
    candidates.push_back(kernels::best_bf16_isa(subject.machine.cpu));
  }
  if (options.activation == Activation::kInt8) {
    candidates.push_back(kernels::best_int8_isa(subject.machine.cpu));
  }
  for (const kernels::CpuIsa isa : candidates) {
    const double peak = kernels::dot_peak(pool, isa);
    if (peak > rates.peak) {
      rates.peak = peak;
      rates.peak_isa = kernels::isa_name(isa);
    }
  }
  return rates;
}

// Of the GPU, before the model takes its memory.
Result<BenchRates> measure_device(const BenchOptions& options, const Subject& subject) {
  NIBBLE_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, open_cuda(0));
  NIBBLE_ASSIGN_OR_RETURN(const std::int64_t free, device->free_bytes());
  BenchRates rates;
  rates.read_bytes = std::clamp<std::int64_t>(std::min(subject.model.size, free / 4), 1 << 20,
                                              std::int64_t{1} << 31);
  NIBBLE_ASSIGN_OR_RETURN(rates.read, kernels::device_read_bandwidth(*device, rates.read_bytes));
  if (options.activation == Activation::kBf16) {
    NIBBLE_ASSIGN_OR_RETURN(rates.peak, kernels::device_bf16_peak(*device));
    rates.peak_isa = "wgmma_bf16";
  }
  return rates;
}

Result<BenchRow> measure(const BenchTest& test, const BenchOptions& options, const Subject& subject,
                         BenchRunner& runner) {
  BenchRow row;
  row.model = subject.model;
  row.test = test;
  row.cpu_info = subject.machine.cpu_name;
  row.activation = activation_name(options.activation);
  const DType cache = cache_dtype(options.activation, options.kv_cache);
  row.kv_cache = cache_name(cache);
  row.is_full = options.is_full;
  row.test_time = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  const BenchCost cost = cost_of(timed_steps(test), subject.source.config, subject.token,
                                 model::cache_elem_bytes(subject.source.config, cache));
  row.bytes_per_token = cost.bytes / static_cast<double>(test.num_tokens());
  row.flops_per_token = cost.flops / static_cast<double>(test.num_tokens());
  NIBBLE_RETURN_IF_ERROR(runner.prepare(test));
  row.test.n_threads = runner.num_threads();
  row.decode_path = runner.decode_path();
  const std::int32_t first = options.has_warmup ? -1 : 0;
  for (std::int32_t repetition = first; repetition < options.repetitions; ++repetition) {
    NIBBLE_ASSIGN_OR_RETURN(const std::int64_t ns, runner.run(test));
    if (repetition >= 0) {
      row.samples_ns.push_back(std::max<std::int64_t>(1, ns));
    }
  }
  return row;
}

// All tests with one number of threads.
Status bench_group(std::span<const BenchTest> tests, const BenchOptions& options,
                   const Subject& subject, const std::function<bool(const BenchRow&)>& on_row) {
  NIBBLE_ASSIGN_OR_RETURN(const ChosenDevice device, choose_device(options.device));
  BenchRates rates;
  if (device.kernels == model::KernelChoice::kCuda) {
    NIBBLE_ASSIGN_OR_RETURN(rates, measure_device(options, subject));
  } else {
    rates = measure_rates(tests.front(), options, subject);
  }
  NIBBLE_ASSIGN_OR_RETURN(
      const std::unique_ptr<BenchRunner> runner,
      options.is_full
          ? make_full_runner(options, device.kernels, tests.front().n_threads, subject.source)
          : make_step_runner(options, device.kernels, tests, subject.source));
  for (const BenchTest& test : tests) {
    NIBBLE_ASSIGN_OR_RETURN(BenchRow row, measure(test, options, subject, *runner));
    row.rates = rates;
    row.device = device.reason;
    if (!on_row(row)) {
      return error(Code::kCancelled, "stopped after {}", test_name(test));
    }
  }
  return {};
}

// The counts of one cell of the lists: prompts, generations, pairs.
void add_counts(const BenchOptions& options, BenchTest test, std::vector<BenchTest>& tests) {
  const auto add = [&](std::int32_t n_prompt, std::int32_t n_gen) {
    test.n_prompt = n_prompt;
    test.n_gen = n_gen;
    if (n_prompt + n_gen > 0) {
      tests.push_back(test);
    }
  };
  for (const std::int32_t n_prompt : options.n_prompt) {
    add(n_prompt, 0);
  }
  for (const std::int32_t n_gen : options.n_gen) {
    add(0, n_gen);
  }
  for (const auto& [n_prompt, n_gen] : options.prompt_gen) {
    add(n_prompt, n_gen);
  }
}

bool is_same_test(const BenchTest& a, const BenchTest& b) {
  return a.n_prompt == b.n_prompt && a.n_gen == b.n_gen && a.n_depth == b.n_depth &&
         a.streams == b.streams && a.n_threads == b.n_threads;
}

// Whether the two did the same work, whatever the batches.
bool is_same_work(const BenchBaseline& baseline, const BenchRow& row, const std::string& model) {
  return baseline.model == model && is_same_test(baseline.test, row.test) &&
         baseline.backend == row.backend() && baseline.activation == row.activation &&
         baseline.kv_cache == row.kv_cache && baseline.is_full == row.is_full;
}

}  // namespace

std::vector<double> BenchRow::samples_ts() const {
  std::vector<double> speeds;
  for (const std::int64_t ns : samples_ns) {
    speeds.push_back(1e9 * static_cast<double>(test.num_tokens()) / static_cast<double>(ns));
  }
  return speeds;
}

double BenchRow::avg_ts() const { return mean_of(samples_ts()); }
double BenchRow::stddev_ts() const { return deviation_of(samples_ts()); }

std::string test_name(const BenchTest& test) {
  std::string name = test.n_prompt > 0 ? fmt::format("pp{}", test.n_prompt) : "";
  if (test.n_gen > 0) {
    name += fmt::format("{}tg{}", name.empty() ? "" : "+", test.n_gen);
  }
  return test.n_depth > 0 ? fmt::format("{} @ d{}", name, test.n_depth) : name;
}

double mean_of(const std::vector<double>& values) {
  return values.empty() ? 0.0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

double deviation_of(const std::vector<double>& values) {
  if (values.size() < 2) {
    return 0.0;
  }
  const double mean = mean_of(values);
  double squares = 0.0;
  for (const double value : values) {
    squares += (value - mean) * (value - mean);
  }
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

std::vector<BenchTest> bench_tests(const BenchOptions& options) {
  std::vector<BenchTest> tests;
  for (const std::int32_t n_threads : options.n_threads) {
    for (const std::int32_t n_depth : options.n_depth) {
      for (const std::int32_t streams : options.streams) {
        for (const std::int32_t n_batch : options.n_batch) {
          for (const std::int32_t n_ubatch : options.n_ubatch) {
            add_counts(options,
                       {.n_depth = n_depth,
                        .streams = streams,
                        .n_batch = n_batch,
                        .n_ubatch = n_ubatch,
                        .n_threads = n_threads},
                       tests);
          }
        }
      }
    }
  }
  return tests;
}

Status bench(const BenchOptions& options, const std::function<bool(const BenchRow&)>& on_row) {
  NIBBLE_ASSIGN_OR_RETURN(const Subject subject, subject_of(options));
  const std::vector<BenchTest> tests = bench_tests(options);
  if (tests.empty()) {
    return error(Code::kInvalidArgument, "want a count of tokens above 0, found only 0");
  }
  for (const BenchTest& test : tests) {
    NIBBLE_RETURN_IF_ERROR(check_test(test, options, subject.source.config));
  }
  for (auto begin = tests.begin(); begin != tests.end();) {
    const auto end = std::find_if(begin, tests.end(), [&](const BenchTest& test) {
      return test.n_threads != begin->n_threads;
    });
    NIBBLE_RETURN_IF_ERROR(bench_group({begin, end}, options, subject, on_row));
    begin = end;
  }
  return {};
}

BenchComparison compare(const BenchRow& row, const std::string& model,
                        const std::vector<BenchBaseline>& baselines) {
  const BenchBaseline* found = nullptr;
  for (const BenchBaseline& baseline : baselines) {
    if (!is_same_work(baseline, row, model)) {
      continue;
    }
    const bool has_same_batches =
        baseline.test.n_batch == row.test.n_batch && baseline.test.n_ubatch == row.test.n_ubatch;
    if (has_same_batches) {
      found = &baseline;
      break;
    }
    found = found == nullptr ? &baseline : found;
  }
  if (found == nullptr) {
    return {};
  }
  BenchComparison result{.has_baseline = true, .baseline_ts = found->avg_ts};
  result.noise_ts =
      std::max(kLeastNoise * found->avg_ts, 2.0 * std::hypot(found->stddev_ts, row.stddev_ts()));
  result.is_slower = row.avg_ts() < found->avg_ts - result.noise_ts;
  result.is_faster = row.avg_ts() > found->avg_ts + result.noise_ts;
  return result;
}

}  // namespace nibble::commands
