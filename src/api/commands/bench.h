// `nibble bench`: how fast a checkpoint is read and computed, beside what this machine could do at
// most.
//
// Ids are random and the model is driven step by step without engine, tokenizer or sampling, as
// llama-bench does; `is_full` goes through the engine instead and includes them. A model that
// chooses tokens itself, on a GPU, does so in both.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "nibble/engine.h"
#include "nibble/status.h"

namespace nibble::commands {

// One measurement. Every stream is a sequence of its own with these counts.
struct BenchTest {
  std::int32_t n_prompt = 0;  // tokens computed together
  std::int32_t n_gen = 0;     // then tokens computed one after the other
  std::int32_t n_depth = 0;   // tokens that the cache holds before, not timed
  std::int32_t streams = 1;
  // Rows handed over together, and rows of one forward pass: a step ends where either is full.
  std::int32_t n_batch = 2048;
  std::int32_t n_ubatch = 512;
  std::int32_t n_threads = 0;  // 0: all available

  std::int64_t num_tokens() const { return std::int64_t{streams} * (n_prompt + n_gen); }
};

struct BenchOptions {
  std::string model;  // folder, or a preset with kDummy
  LoadFormat load_format = LoadFormat::kFiles;
  std::vector<std::int32_t> n_prompt = {512};
  std::vector<std::int32_t> n_gen = {128};
  std::vector<std::pair<std::int32_t, std::int32_t>> prompt_gen;  // both timed together
  std::vector<std::int32_t> n_depth = {0};
  std::vector<std::int32_t> streams = {1};
  std::vector<std::int32_t> n_batch = {2048};
  std::vector<std::int32_t> n_ubatch = {512};
  std::vector<std::int32_t> n_threads = {0};
  std::int32_t repetitions = 5;
  Activation activation = Activation::kBf16;
  KvCacheType kv_cache = KvCacheType::kAuto;
  DeviceChoice device = DeviceChoice::kAuto;
  DecodePath decode_path = DecodePath::kAuto;  // of one row on a GPU
  bool has_warmup = true;
  bool is_full = false;
};

struct BenchModel {
  std::string folder;
  std::string type;  // "gpt_oss mxfp4"
  std::int64_t size = 0;
  std::int64_t n_params = 0;
};

// Of the machine, measured just before the row: of the processor with the row's threads, or of the
// GPU that the model runs on.
struct BenchRates {
  double read = 0.0;            // bytes/s of a buffer of `read_bytes`
  std::int64_t read_bytes = 0;  // as the model's files, within 1 MB and 2 GB
  double peak = 0.0;            // operations/s of the best dot product for the activation
  std::string peak_isa;         // "amx_bf16"; empty: none of ours, `peak` is 0
};

struct BenchRow {
  BenchModel model;
  BenchTest test;  // n_threads as used
  BenchRates rates;
  std::string cpu_info;
  std::string device;       // where the model ran, and why: "cpu: asked for"
  std::string decode_path;  // of one row on a GPU: Model::decode_path()
  bool is_on_gpu() const { return device.rfind("cuda", 0) == 0; }
  const char* backend() const { return is_on_gpu() ? "CUDA" : "CPU"; }
  std::string activation;  // "bf16", "f32" or "int8"
  std::string kv_cache;    // "bf16", "f32" or "fp8"
  bool is_full = false;
  std::string test_time;  // "2026-12-01T02:34:53Z"
  std::vector<std::int64_t> samples_ns;
  // Compulsory traffic and operations of the test over its tokens: docs/benchmarking.md.
  double bytes_per_token = 0.0;
  double flops_per_token = 0.0;

  // Tokens a second, of each sample.
  std::vector<double> samples_ts() const;
  double avg_ts() const;
  double stddev_ts() const;
  double gb_s() const { return bytes_per_token * avg_ts() / 1e9; }
  double tflop_s() const { return flops_per_token * avg_ts() / 1e12; }
  // 0 where the machine's rate is unknown.
  double bandwidth_fraction() const { return rates.read > 0.0 ? gb_s() * 1e9 / rates.read : 0.0; }
  double peak_fraction() const { return rates.peak > 0.0 ? tflop_s() * 1e12 / rates.peak : 0.0; }
};

// "pp512", "tg128", "pp512+tg128", with " @ d4096" at a depth.
std::string test_name(const BenchTest& test);

// Mean, and the deviation of a sample (n - 1); 0 for fewer than one and two values.
double mean_of(const std::vector<double>& values);
double deviation_of(const std::vector<double>& values);

// Every test that the lists make: threads, then depths, streams and batches; within them prompts,
// generations, pairs. Counts of 0 ask for nothing.
std::vector<BenchTest> bench_tests(const BenchOptions& options);

// Measures test after test; `on_row` gets each as it is done and stops the rest with false
// (kCancelled). kInvalidArgument: nothing to measure, or a test longer than the model's context;
// kExhausted: caches that do not fit; kNotFound and kCorrupt: the model.
Status bench(const BenchOptions& options, const std::function<bool(const BenchRow&)>& on_row);

// What an earlier run measured, read by the caller from its file.
struct BenchBaseline {
  std::string model;
  BenchTest test;
  std::string backend;     // BenchRow::backend()
  std::string activation;  // BenchRow::activation
  std::string kv_cache;    // BenchRow::kv_cache
  bool is_full = false;
  double avg_ts = 0.0;
  double stddev_ts = 0.0;
};

struct BenchComparison {
  bool has_baseline = false;  // false: the rest means nothing
  double baseline_ts = 0.0;
  // What two runs of the same speed may differ by: twice the deviation of the difference of two
  // samples, at least 2 % of the baseline.
  double noise_ts = 0.0;
  bool is_slower = false;  // by more than the noise
  bool is_faster = false;
};

// With the entry of the same model, counts, depth, streams, threads, backend, activations and
// fullness; of several the one with the same batches, else the first.
BenchComparison compare(const BenchRow& row, const std::string& model,
                        const std::vector<BenchBaseline>& baselines);

}  // namespace nibble::commands
