// Text in, text out: a model on one machine, ready to answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nibble/request.h"
#include "nibble/status.h"

namespace nibble {

enum class Activation : std::uint8_t {
  kBf16,  ///< inputs of every product rounded to bfloat16; sums in float32
  kF32,   ///< no rounding; what reference implementations compute
  kInt8,  ///< as kBf16, inputs of the experts' products 8-bit whole numbers with a scale for each
          ///< 32; kUnsupported on a GPU and for experts that are not MXFP4
};

/// What keys and values are kept as.
enum class KvCacheType : std::uint8_t {
  kAuto,  ///< as activations: bfloat16, or float32 with Activation::kF32
  kFp8,   ///< e4m3, with a power-of-two scale for each head and position: half of bfloat16's bytes
};

/// Where a model is computed.
enum class DeviceChoice : std::uint8_t {
  kAuto,  ///< the first GPU if this build has verified kernels for it, else the processor
  kCpu,
  kCuda,  ///< the first GPU, or kUnsupported with the reason
};

/// How one token of one sequence is computed on a GPU.
enum class DecodePath : std::uint8_t {
  kAuto,        ///< by one persistent kernel where it can be, else by a graph of single kernels
  kGraph,       ///< by the graph
  kPersistent,  ///< by the persistent kernel, or kUnsupported with the reason
};

/// Where weights come from.
enum class LoadFormat : std::uint8_t {
  kFiles,  ///< the safetensors files of the model's folder
  /// Random ones, made where the model is computed: those that `nibble make-model` writes with seed
  /// 0. `model` is a folder with config.json, or the name of a preset ("gpt-oss-120b").
  kDummy,
};

struct EngineOptions {
  std::string model;  ///< folder with config.json and safetensors files
  LoadFormat load_format = LoadFormat::kFiles;
  Activation activation = Activation::kBf16;
  KvCacheType kv_cache = KvCacheType::kAuto;
  DeviceChoice device = DeviceChoice::kAuto;
  std::int32_t num_threads = 0;  ///< 0: every processor this process may use
  std::int32_t max_model_len =
      0;  ///< context limit in tokens; 0: the model's, lowered to what memory allows
  std::int32_t max_num_seqs = 1;  ///< sequences computed together
  /// Rows of one step; prompts are cut into chunks of this. 0: 512 on a processor; on a GPU up to
  /// 8,192, as long as they take at most a quarter of the memory beside the weights.
  std::int32_t max_batch_tokens = 0;
  std::int32_t page_size = 64;        ///< tokens of a cache page
  bool enable_prefix_caching = true;  ///< keep what was computed for prompts that begin alike
  bool is_deterministic = false;      ///< refuse to load where an answer would depend on others
  DecodePath decode_path = DecodePath::kAuto;
  bool use_reference_kernels = false;  ///< the scalar references: slow, for checking
};

struct EngineInfo {
  std::string model;  ///< folder
  std::string architecture;
  std::string device;      ///< where it is computed and why: "cpu: this build has no CUDA kernels"
  std::string activation;  ///< "bf16", "f32" or "int8", as asked for
  std::string kv_cache;    ///< "bf16", "f32" or "fp8"
  std::int32_t vocab_size = 0;
  std::int32_t max_model_len = 0;
  std::int32_t num_threads = 0;
  bool has_tokenizer = false;
  std::int64_t mapped_bytes = 0;  ///< checkpoint files
  std::int64_t owned_weight_bytes = 0;
  std::int64_t kv_bytes = 0;
  std::int64_t workspace_bytes = 0;
  double load_ms = 0.0;
};

/// Teacher-forced log-probabilities of a given text.
struct ScoreRequest {
  std::vector<std::int32_t> ids;
  std::int32_t top = 0;  ///< also the n best alternatives at each position
  /// Called in order of position with the whole row of logits [vocab]; may be empty.
  std::function<void(std::int32_t position, std::span<const float> logits)> on_logits;
};
struct ScoreResult {
  std::vector<TokenLogprob> tokens;  ///< one for each id; the first has no logprob (NaN) and no top
  double perplexity = 0.0;  ///< exp(-mean logprob of ids[1..]); NaN with fewer than two ids
};

/// One engine is used by one thread at a time.
class Engine {
 public:
  /// Maps and checks the files, plans memory. kNotFound and kCorrupt: the model; kExhausted: does
  /// not fit, with the numbers; kUnsupported: architecture, or `is_deterministic` on a GPU.
  static Result<Engine> load(const EngineOptions& options);

  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  const EngineInfo& info() const;

  /// Generates one answer. `on_delta` is called in this thread for each piece; returning false
  /// cancels (the response so far comes back with kCancelled). kInvalidArgument: the request cannot
  /// be run as asked.
  Result<Response> generate(const Request& request,
                            const std::function<bool(const Delta&)>& on_delta = {});

  Result<ScoreResult> score(const ScoreRequest& request);

  /// kUnsupported without a tokenizer file. `with_special`: spellings of control tokens become
  /// those tokens.
  Result<std::vector<std::int32_t>> encode(const std::string& text, bool with_special) const;
  Result<std::string> decode(const std::vector<std::int32_t>& ids) const;
  /// Prompt ids that `generate` would use.
  Result<std::vector<std::int32_t>> prompt_ids(const Request& request) const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble
