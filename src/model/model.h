// gpt-oss on one device: weights, workspace, and the forward pass over a BatchPlan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/sample/sample_rows.h"
#include "model/batch_plan.h"
#include "model/config.h"
#include "nibble/status.h"
#include "tensor/device_facts.h"
#include "tensor/dtype.h"

namespace nibble::model {

enum class KernelChoice : std::uint8_t { kReference, kCpu, kCuda };

// How a step of one row is computed on a GPU.
enum class DecodePath : std::uint8_t {
  kAuto,   // by one persistent kernel where its rule lets it (model/decode_path.h), else kGraph
  kGraph,  // by a kernel for each operation, replayed from a graph
  kPersistent,  // by the persistent kernel, or kUnsupported with the reason
};

struct ModelOptions {
  DType activation = DType::kBF16;  // input of every product: kF32 or kBF16
  // kF32, kBF16, or kE4M3 with a scale for each row and head (formats/e4m3_row.h).
  DType kv_dtype = DType::kBF16;
  // Inputs of the experts' products as int8 with a scale for 32 (kernels/moe/moe.h): experts of
  // MXFP4 on a processor, kUnsupported elsewhere. The other products keep `activation`.
  bool int8_experts = false;
  KernelChoice kernels = KernelChoice::kCpu;
  int device_index = 0;  // kCuda: which GPU
  DecodePath decode = DecodePath::kAuto;
  int num_threads = 0;                  // 0: all available
  std::int32_t max_batch_tokens = 512;  // rows of the largest plan
  std::int32_t max_logit_rows = 512;
  std::int32_t max_position = 0;  // context limit; 0: the config's
  std::int32_t page_size = 64;
  std::int32_t num_pages[kNumCacheGroups] = {0, 0};
};

// Bytes that a model with these options takes beyond its mapped files; of a GPU's memory when it
// runs there, and nothing stays mapped.
struct MemoryPlan {
  std::int64_t mapped_bytes = 0;
  std::int64_t owned_weight_bytes = 0;
  std::int64_t kv_bytes = 0;
  std::int64_t workspace_bytes = 0;
};

// Places in a step where a tap sees what was just computed.
enum class TapPlace : std::uint8_t {
  kAttention,  // residual [rows, hidden] after the attention block
  kRouter,     // router logits [rows, num_experts]
  kExperts,    // residual after the expert block
  kHead,       // logits [logit rows, vocab]; layer is num_layers
};
// May change the values: what follows then computes on the changed ones.
using Tap = std::function<void(TapPlace place, std::int32_t layer, std::span<float> values)>;

inline constexpr int kMostStartedSteps = 2;
// Counts and biases of all rows of one step.
inline constexpr std::int32_t kMostSampleEntries = 1 << 17;

// How the logit rows of a step are sampled; entries of rows are ranges of the other two.
struct SampleBatch {
  std::vector<kernels::SampleRow> rows;  // one for each logit row
  std::vector<kernels::TokenCount> counts;
  std::vector<kernels::LogitBias> logit_bias;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;
  virtual const ModelOptions& options() const = 0;
  virtual MemoryPlan memory() const = 0;
  virtual int num_threads() const = 0;
  // The GPU that it runs on; null: this processor.
  virtual const DeviceFacts* device() const { return nullptr; }

  // What computes steps of one row, and why: "decode_step_bf16_mxfp4_sm90", or "graph: " and the
  // reason; empty where there is no GPU.
  virtual std::string decode_path() const { return {}; }

  // Runs the plan and writes logits [plan.logit_rows.size(), vocab]. Writes keys and values of
  // every row into the cache. kInternal names the layer when a router sees NaN. On a GPU `logits`
  // may be empty: they are computed and stay there. Not thread-safe.
  virtual Status forward(const BatchPlan& plan, std::span<float> logits) = 0;

  // Steps whose tokens are chosen where the logits are, so that the next one can be enqueued before
  // this one is done. False: only `forward` can be used.
  virtual bool can_sample() const { return false; }
  // Enqueues the plan and the choice of a token for each of its logit rows. The token id -1 - r in
  // the plan is the one that logit row r of the step started before this one gets. At most
  // kMostStartedSteps may be waiting for `finish`.
  virtual Status start(const BatchPlan& plan, const SampleBatch& batch);
  // Waits for the oldest started step and gives the tokens of its logit rows, -1 where nothing can
  // be drawn; valid until the next `start`. Errors as of `forward`: that step has no tokens.
  virtual Result<std::span<const std::int32_t>> finish();
  // The logits [vocab] of a row of the step that was finished last, unless another was started.
  virtual Status copy_logits(std::int32_t logit_row, std::span<float> logits);

  // The kernels that the last `forward` or `start` ran, a bit for each, and what such bits stand
  // for.
  virtual std::uint64_t kernels_of_step() const { return 0; }
  virtual std::vector<std::string> kernel_names(std::uint64_t /*kernels*/) const { return {}; }

  // For comparing implementations; empty switches it off. Costs nothing when off.
  virtual void set_tap(Tap tap) = 0;
};

// Maps and checks the checkpoint, allocates cache and workspace. kCuda copies the weights to the
// GPU; kUnsupported, with the reason, where there is none that this build can use.
Result<std::unique_ptr<Model>> load_model(const std::string& folder, const ModelOptions& options);

// The same with random weights instead of files: the tensors of `nibble make-model` with this seed,
// made where the kernels run. kUnsupported: experts that are not MXFP4.
Result<std::unique_ptr<Model>> load_dummy_model(const ModelConfig& config,
                                                const ModelOptions& options, std::uint64_t seed);

// What a GPU holds of such a model beside weights and cache, at most: activations, logits, inputs
// and tokens of a step.
std::int64_t device_step_bytes(const ModelConfig& config, const ModelOptions& options);

// Bytes of one number in a cache of this type, its part of a row's scale included.
double cache_elem_bytes(const ModelConfig& config, DType kv_dtype);

// Bytes of one page of each group over all its layers.
std::int64_t page_bytes(const ModelConfig& config, const ModelOptions& options, CacheGroup group);

}  // namespace nibble::model
