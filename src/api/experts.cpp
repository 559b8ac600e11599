#include "nibble/experts.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "kernels/moe/moe.h"
#include "tensor/buffer.h"

namespace nibble {
namespace {

const formats::Bf16* as_bf16(const std::uint16_t* bits) {
  return reinterpret_cast<const formats::Bf16*>(bits);
}

Status check(const Mxfp4Experts& weights, const ExpertsOptions& options) {
  if (weights.num_experts < 1 || weights.hidden < 32 || weights.intermediate < 32 ||
      weights.hidden % 32 != 0 || weights.intermediate % 32 != 0) {
    return error(Code::kInvalidArgument,
                 "experts: want at least one expert and sizes in whole blocks of 32, got {} "
                 "experts, hidden {}, intermediate {}",
                 weights.num_experts, weights.hidden, weights.intermediate);
  }
  if (weights.gate_up_blocks == nullptr || weights.gate_up_scales == nullptr ||
      weights.down_blocks == nullptr || weights.down_scales == nullptr) {
    return error(Code::kInvalidArgument, "experts: blocks or scales of {} experts are null",
                 weights.num_experts);
  }
  if (options.num_threads < 0 || options.max_tokens < 1 || options.max_top_k < 1) {
    return error(Code::kInvalidArgument,
                 "experts: want num_threads >= 0, max_tokens >= 1 and max_top_k >= 1, got {}, {} "
                 "and {}",
                 options.num_threads, options.max_tokens, options.max_top_k);
  }
  return {};
}

kernels::MoeArgs args_of(const Mxfp4Experts& weights, const ExpertsOptions& options) {
  kernels::MoeArgs args;
  args.gate_up = {kernels::Mxfp4Rows{weights.gate_up_blocks, weights.gate_up_scales},
                  as_bf16(weights.gate_up_bias)};
  args.down = {kernels::Mxfp4Rows{weights.down_blocks, weights.down_scales},
               as_bf16(weights.down_bias)};
  args.hidden = weights.hidden;
  args.intermediate = weights.intermediate;
  args.num_experts = weights.num_experts;
  args.alpha = weights.alpha;
  args.limit = weights.limit;
  args.x_dtype = options.rounds_to_bf16 ? DType::kBF16 : DType::kF32;
  return args;
}

// A pass in which every token has the same number of local experts.
struct Pass {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> ids;  // [tokens, slots]
  std::vector<float> weights;
};

}  // namespace

struct Experts::State {
  State(const Mxfp4Experts& weights, const ExpertsOptions& chosen)
      : options(chosen), args(args_of(weights, chosen)), pool(chosen.num_threads) {
    args.top_k = chosen.max_top_k;
    workspace = Buffer<std::byte>(
        static_cast<std::size_t>(kernels::moe_workspace_bytes(args, chosen.max_tokens)));
    args.workspace = workspace.span();
  }

  ExpertsOptions options;
  kernels::MoeArgs args;
  ThreadPool pool;
  Buffer<std::byte> workspace;
  std::vector<formats::Bf16> rounded;  // x of a pass
  std::vector<float> gathered;         // x of a pass whose tokens are not neighbours
  std::vector<float> partial;          // its results

  Status check_ids(const std::int32_t* ids, std::int32_t num_tokens, std::int32_t top_k,
                   bool& has_absent) const;
  Status run(const float* x, const std::int32_t* ids, const float* weights, std::int32_t num_tokens,
             std::int32_t top_k, float* out);
  Status run_pass(const float* x, const Pass& pass, std::int32_t slots, float* out);
};

Status Experts::State::check_ids(const std::int32_t* ids, std::int32_t num_tokens,
                                 std::int32_t top_k, bool& has_absent) const {
  has_absent = false;
  for (std::int64_t i = 0; i < std::int64_t{num_tokens} * top_k; ++i) {
    if (ids[i] < -1 || ids[i] >= args.num_experts) {
      return error(Code::kInvalidArgument, "experts: id {} of token {}, slot {} is outside -1..{}",
                   ids[i], i / top_k, i % top_k, args.num_experts - 1);
    }
    has_absent = has_absent || ids[i] < 0;
  }
  return {};
}

// Adds to `out`.
Status Experts::State::run(const float* x, const std::int32_t* ids, const float* weights,
                           std::int32_t num_tokens, std::int32_t top_k, float* out) {
  kernels::MoeArgs call = args;
  call.top_k = top_k;
  const Exec exec{&pool, nullptr};
  for (std::int32_t begin = 0; begin < num_tokens; begin += options.max_tokens) {
    const std::int64_t first = begin;
    call.num_tokens = std::min(options.max_tokens, num_tokens - begin);
    call.ids = ids + first * top_k;
    call.weights = weights + first * top_k;
    call.out = out + first * call.hidden;
    const float* rows = x + first * call.hidden;
    call.x = rows;
    if (options.rounds_to_bf16) {
      const std::size_t count = static_cast<std::size_t>(call.num_tokens) * call.hidden;
      rounded.resize(count);
      std::transform(rows, rows + count, rounded.begin(), &formats::f32_to_bf16);
      call.x = rounded.data();
    }
    NIBBLE_RETURN_IF_ERROR(options.use_reference_kernels ? kernels::moe_ref(call)
                                                         : kernels::moe(call, exec));
  }
  return {};
}

Status Experts::State::run_pass(const float* x, const Pass& pass, std::int32_t slots, float* out) {
  const std::int64_t hidden = args.hidden;
  gathered.resize(pass.tokens.size() * hidden);
  partial.assign(gathered.size(), 0.0F);
  for (std::size_t i = 0; i < pass.tokens.size(); ++i) {
    std::copy_n(x + pass.tokens[i] * hidden, hidden, gathered.data() + i * hidden);
  }
  NIBBLE_RETURN_IF_ERROR(run(gathered.data(), pass.ids.data(), pass.weights.data(),
                             static_cast<std::int32_t>(pass.tokens.size()), slots, partial.data()));
  for (std::size_t i = 0; i < pass.tokens.size(); ++i) {
    std::copy_n(partial.data() + i * hidden, hidden, out + pass.tokens[i] * hidden);
  }
  return {};
}

Experts::Experts(std::unique_ptr<State> state) : state_(std::move(state)) {}
Experts::Experts(Experts&&) noexcept = default;
Experts& Experts::operator=(Experts&&) noexcept = default;
Experts::~Experts() = default;

Result<Experts> Experts::create(const Mxfp4Experts& weights, const ExpertsOptions& options) {
  NIBBLE_RETURN_IF_ERROR(check(weights, options));
  return Experts(std::make_unique<State>(weights, options));
}

std::int64_t Experts::workspace_bytes() const {
  return static_cast<std::int64_t>(state_->workspace.size_bytes());
}

Status Experts::forward(const float* x, const std::int32_t* ids, const float* weights,
                        std::int32_t num_tokens, std::int32_t top_k, float* out) {
  State& state = *state_;
  if (num_tokens < 0 || top_k < 1 || top_k > state.options.max_top_k) {
    return error(Code::kInvalidArgument,
                 "experts: want tokens >= 0 and top_k in 1..{}, got {} and {}",
                 state.options.max_top_k, num_tokens, top_k);
  }
  if (num_tokens > 0 && (x == nullptr || ids == nullptr || weights == nullptr || out == nullptr)) {
    return error(Code::kInvalidArgument, "experts: an array for {} tokens is null", num_tokens);
  }
  bool has_absent = false;
  NIBBLE_RETURN_IF_ERROR(state.check_ids(ids, num_tokens, top_k, has_absent));
  std::fill_n(out, std::int64_t{num_tokens} * state.args.hidden, 0.0F);
  if (!has_absent) {
    return state.run(x, ids, weights, num_tokens, top_k, out);
  }
  // Absent slots are left out rather than weighed by zero: zero times Inf would be NaN.
  std::vector<Pass> passes(top_k + 1);
  for (std::int32_t token = 0; token < num_tokens; ++token) {
    const std::int32_t* row = ids + std::int64_t{token} * top_k;
    const auto live = top_k - std::count(row, row + top_k, -1);
    Pass& pass = passes[live];
    pass.tokens.push_back(token);
    for (std::int32_t slot = 0; slot < top_k; ++slot) {
      if (row[slot] >= 0) {
        pass.ids.push_back(row[slot]);
        pass.weights.push_back(weights[std::int64_t{token} * top_k + slot]);
      }
    }
  }
  for (std::int32_t slots = 1; slots <= top_k; ++slots) {
    if (!passes[slots].tokens.empty()) {
      NIBBLE_RETURN_IF_ERROR(state.run_pass(x, passes[slots], slots, out));
    }
  }
  return {};
}

}  // namespace nibble
