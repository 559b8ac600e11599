#include "nibble/c_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "api/c_status.h"
#include "base/error.h"
#include "kernels/route/ragged.h"
#include "nibble/capabilities.h"
#include "nibble/experts.h"
#include "nibble/plan.h"
#include "nibble/route.h"

struct nibble_experts {  // NOLINT(readability-identifier-naming): the name of C
  nibble::Experts experts;
};

namespace nibble {
namespace {

using c_api::read_enum;
using c_api::refuse_null;
using c_api::report;

static_assert(static_cast<int>(Code::kInvalidArgument) == NIBBLE_INVALID_ARGUMENT);
static_assert(static_cast<int>(Code::kUnsupported) == NIBBLE_UNSUPPORTED);
static_assert(static_cast<int>(Code::kCorrupt) == NIBBLE_CORRUPT);
static_assert(static_cast<int>(Code::kNotFound) == NIBBLE_NOT_FOUND);
static_assert(static_cast<int>(Code::kExhausted) == NIBBLE_EXHAUSTED);
static_assert(static_cast<int>(Code::kCancelled) == NIBBLE_CANCELLED);
static_assert(static_cast<int>(Code::kDevice) == NIBBLE_DEVICE);
static_assert(static_cast<int>(Code::kInternal) == NIBBLE_INTERNAL);

// Null when memory is out, as malloc does.
char* copy_text(const std::string& text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) {
    std::memcpy(copy, text.c_str(), text.size() + 1);
  }
  return copy;
}

Status route_call(const nibble_route_args& args, RouteCall& call) {
  NIBBLE_RETURN_IF_ERROR(
      read_enum(args.score, RouteScore::kSqrtSoftplus, "score", call.options.score));
  NIBBLE_RETURN_IF_ERROR(read_enum(args.bias_type, BiasType::kF16, "bias_type", call.bias_type));
  call.logits = args.logits;
  call.given_ids = args.given_ids;
  call.bias = args.bias;
  call.ids = args.ids;
  call.weights = args.weights;
  call.num_tokens = args.num_tokens;
  call.num_valid_tokens = args.num_valid_tokens;
  call.num_experts = args.num_experts;
  call.top_k = args.top_k;
  RouteOptions& options = call.options;
  options.renormalise = args.renormalise != 0;
  options.renormalise_epsilon = args.renormalise_epsilon;
  options.scaling = args.scaling;
  options.num_groups = args.num_groups;
  options.topk_groups = args.topk_groups;
  options.group_score = args.groups_count_best != 0 ? GroupScore::kBest : GroupScore::kSumOfBestTwo;
  options.slot_order = args.order_by_expert != 0 ? SlotOrder::kByExpert : SlotOrder::kByKey;
  options.round_to_bf16 = args.round_to_bf16 != 0;
  options.placement = {args.remap, args.num_physical, args.local_begin, args.local_end,
                       args.compact != 0};
  return {};
}

// The names that a plan can have, which outlive it.
const char* static_name(const std::string& name) {
  static constexpr const char* kNames[] = {"tiled", "output_centric", "strided", "hopper",
                                           "blackwell"};
  for (const char* known : kNames) {
    if (name == known) {
      return known;
    }
  }
  return "unknown";
}

nibble_plan plan_of(const ProductPlan& plan) {
  return {static_name(plan.form), static_name(plan.layout),
          plan.block_m,           plan.block_n,
          plan.block_k,           plan.num_warps,
          plan.num_stages,        plan.split_k,
          plan.epilogue_subtile,  plan.is_persistent ? 1 : 0,
          plan.padded_n,          plan.padded_k,
          plan.shared_bytes,      plan.grid,
          plan.verified ? 1 : 0};
}

}  // namespace
}  // namespace nibble

using nibble::Code;
using nibble::Result;

const char* nibble_version(void) { return NIBBLE_VERSION; }

const char* nibble_code_name(int code) {
  return nibble::name(static_cast<Code>(code)).data();  // literals, so zero-terminated
}

void nibble_free(char* text) { std::free(text); }

void nibble_route_args_init(nibble_route_args* args) {
  const nibble::RouteCall call;
  *args = {};
  args->num_valid_tokens = call.num_valid_tokens;
  args->scaling = call.options.scaling;
  args->num_groups = call.options.num_groups;
  args->topk_groups = call.options.topk_groups;
}

nibble_code nibble_route(const nibble_route_args* args, nibble_message* message) {
  if (args == nullptr) {
    return nibble::c_api::refuse_null("args", message);
  }
  nibble::RouteCall call;
  const nibble::Status status = nibble::route_call(*args, call);
  return nibble::c_api::report(status.ok() ? nibble::route(call) : status, message);
}

void nibble_ragged_args_init(nibble_ragged_args* args) {
  *args = {};
  args->num_valid_tokens = -1;
}

int64_t nibble_max_blocks(int64_t rows, int32_t num_experts) {
  return nibble::kernels::max_blocks(rows, num_experts);
}

nibble_code nibble_ragged(const nibble_ragged_args* args, nibble_message* message) {
  if (args == nullptr || args->num_block_sizes < 0) {
    return args == nullptr
               ? nibble::c_api::refuse_null("args", message)
               : nibble::c_api::report(
                     nibble::error(Code::kInvalidArgument, "want num_block_sizes >= 0, got {}",
                                   args->num_block_sizes),
                     message);
  }
  nibble::kernels::RaggedArgs inner;
  inner.ids = args->ids;
  inner.weights = args->weights;
  inner.num_tokens = args->num_tokens;
  inner.num_valid_tokens = args->num_valid_tokens == -1 ? args->num_tokens : args->num_valid_tokens;
  inner.top_k = args->top_k;
  inner.num_experts = args->num_experts;
  if (args->block_rows != nullptr) {
    inner.block_rows = {args->block_rows, static_cast<std::size_t>(args->num_block_sizes)};
  }
  const nibble::kernels::RaggedOut out{args->slice_sizes, args->slice_offs, args->gather,
                                       args->scatter,     args->gates,      args->block_offs,
                                       args->schedule};
  return nibble::c_api::report(nibble::kernels::build_ragged(inner, out), message);
}

void nibble_experts_args_init(nibble_experts_args* args) {
  const nibble::Mxfp4Experts weights;
  const nibble::ExpertsOptions options;
  *args = {};
  args->alpha = weights.alpha;
  args->limit = weights.limit;
  args->max_tokens = options.max_tokens;
  args->max_top_k = options.max_top_k;
}

nibble_code nibble_experts_create(const nibble_experts_args* args, nibble_experts** experts,
                                  nibble_message* message) {
  if (args == nullptr || experts == nullptr) {
    return nibble::c_api::refuse_null(args == nullptr ? "args" : "experts", message);
  }
  *experts = nullptr;
  nibble::Mxfp4Experts weights;
  weights.gate_up_blocks = args->gate_up_blocks;
  weights.gate_up_scales = args->gate_up_scales;
  weights.gate_up_bias = args->gate_up_bias;
  weights.down_blocks = args->down_blocks;
  weights.down_scales = args->down_scales;
  weights.down_bias = args->down_bias;
  weights.num_experts = args->num_experts;
  weights.hidden = args->hidden;
  weights.intermediate = args->intermediate;
  weights.alpha = args->alpha;
  weights.limit = args->limit;
  nibble::ExpertsOptions options;
  options.num_threads = args->num_threads;
  options.max_tokens = args->max_tokens;
  options.max_top_k = args->max_top_k;
  options.rounds_to_bf16 = args->rounds_to_bf16 != 0;
  options.use_reference_kernels = args->use_reference_kernels != 0;
  Result<nibble::Experts> created = nibble::Experts::create(weights, options);
  if (!created.has_value()) {
    return nibble::c_api::report(created.error(), message);
  }
  *experts = new nibble_experts{std::move(created).value()};
  return nibble::c_api::report({}, message);
}

nibble_code nibble_experts_forward(nibble_experts* experts, const nibble_experts_call* call,
                                   nibble_message* message) {
  if (experts == nullptr || call == nullptr) {
    return nibble::c_api::refuse_null(experts == nullptr ? "experts" : "call", message);
  }
  return nibble::c_api::report(experts->experts.forward(call->x, call->ids, call->weights,
                                                        call->num_tokens, call->top_k, call->out),
                               message);
}

void nibble_experts_destroy(nibble_experts* experts) { delete experts; }

void nibble_plan_args_init(nibble_plan_args* args) {
  *args = {};
  args->arch = "cpu";
  args->has_tma = 1;
  args->top_k = 1;
  args->has_mxfp4_weights = 1;
}

nibble_code nibble_plan_product(const nibble_plan_args* args, nibble_plan* plan, char** reason,
                                nibble_message* message) {
  if (args == nullptr || plan == nullptr || args->arch == nullptr) {
    return nibble::c_api::refuse_null(args == nullptr   ? "args"
                                      : plan == nullptr ? "plan"
                                                        : "arch",
                                      message);
  }
  nibble::ProductProblem problem;
  problem.tokens = args->tokens;
  problem.num_experts = args->num_experts;
  problem.top_k = args->top_k;
  problem.n = args->n;
  problem.k = args->k;
  problem.has_mxfp4_weights = args->has_mxfp4_weights != 0;
  problem.accumulates = args->accumulates != 0;
  problem.is_deterministic = args->is_deterministic != 0;
  const nibble::PlanDevice device{args->arch, args->num_sms, args->shared_bytes,
                                  args->has_tma != 0};
  const Result<nibble::ProductPlan> made = nibble::plan_product(problem, device);
  if (made.has_value()) {
    *plan = nibble::plan_of(*made);
  }
  if (reason != nullptr) {
    std::string text;
    for (std::size_t i = 0; made.has_value() && i < made->rules.size(); ++i) {
      text +=
          fmt::format("{}{}: {}", i == 0 ? "" : "; ", made->rules[i].field, made->rules[i].rule);
    }
    *reason = made.has_value() ? nibble::copy_text(text) : nullptr;
  }
  return nibble::c_api::report(made.error(), message);
}

nibble_code nibble_capabilities(char** text, nibble_message* message) {
  const nibble::Capabilities found = nibble::capabilities();
  if (text != nullptr) {
    std::string lines;
    for (const nibble::Capability& item : found.items) {
      lines += fmt::format("{}: {}{}{}{}{}\n", item.name, item.is_usable ? "usable" : "not usable",
                           item.version.empty() ? "" : ", version ", item.version,
                           item.reason.empty() ? "" : ": ", item.reason);
    }
    *text = nibble::copy_text(lines);
  }
  return nibble::c_api::report(
      found.can_run ? nibble::Status() : nibble::Status(Code::kUnsupported, found.explanation),
      message);
}
