// One mixture-of-experts layer: choose experts, look at the rows that each gets, compute, and ask
// how the same work would be launched on a GPU that is not here.
#include <nibble/experts.h>
#include <nibble/plan.h>
#include <nibble/route.h>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr std::int32_t kTokens = 6;
constexpr std::int32_t kExperts = 8;
constexpr std::int32_t kTopK = 2;
constexpr std::int32_t kHidden = 64;
constexpr std::int32_t kIntermediate = 96;

// Numbers that look random, the same in every language: examples/moe_layer.c prints the same sums.
std::uint32_t next(std::uint32_t& state) {
  state = state * 1664525U + 1013904223U;
  return state >> 16U;
}

struct Layer {
  std::vector<std::uint8_t> gate_up_blocks, gate_up_scales, down_blocks, down_scales;
};

// MXFP4: two 4-bit values a byte, one scale byte (a power of two, 127 means 1) for 32 values.
Layer make_layer(std::uint32_t& state) {
  Layer layer;
  for (int i = 0; i < kExperts * 2 * kIntermediate * kHidden / 2; ++i) {
    layer.gate_up_blocks.push_back(static_cast<std::uint8_t>(next(state)));
  }
  layer.gate_up_scales.assign(kExperts * 2 * kIntermediate * kHidden / 32, 122);
  for (int i = 0; i < kExperts * kHidden * kIntermediate / 2; ++i) {
    layer.down_blocks.push_back(static_cast<std::uint8_t>(next(state)));
  }
  layer.down_scales.assign(kExperts * kHidden * kIntermediate / 32, 122);
  return layer;
}

std::vector<float> random_floats(std::uint32_t& state, int count) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) {
    values.push_back(static_cast<float>(next(state) % 2048) / 1024.0F - 1.0F);
  }
  return values;
}

int fail(const nibble::Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}

nibble::Mxfp4Experts view(const Layer& layer) {
  nibble::Mxfp4Experts weights;
  weights.gate_up_blocks = layer.gate_up_blocks.data();
  weights.gate_up_scales = layer.gate_up_scales.data();
  weights.down_blocks = layer.down_blocks.data();
  weights.down_scales = layer.down_scales.data();
  weights.num_experts = kExperts;
  weights.hidden = kHidden;
  weights.intermediate = kIntermediate;
  return weights;
}

struct Routes {
  std::vector<std::int32_t> ids;  // [kTokens, kTopK]
  std::vector<float> weights;
};

nibble::Result<Routes> choose(const std::vector<float>& logits) {
  Routes routes{std::vector<std::int32_t>(kTokens * kTopK), std::vector<float>(kTokens * kTopK)};
  nibble::RouteCall call;
  call.logits = logits.data();
  call.ids = routes.ids.data();
  call.weights = routes.weights.data();
  call.num_tokens = kTokens;
  call.num_experts = kExperts;
  call.top_k = kTopK;
  if (nibble::Status status = nibble::route(call); !status.ok()) {
    return status;
  }
  return routes;
}

nibble::Status show_rows(const Routes& routes) {
  nibble::RaggedCall call;
  call.ids = routes.ids.data();
  call.num_tokens = kTokens;
  call.top_k = kTopK;
  call.num_experts = kExperts;
  const nibble::Result<nibble::RaggedRows> rows = nibble::build_ragged(call);
  if (!rows) {
    return rows.error();
  }
  std::printf("rows of each expert:");
  for (const std::int32_t size : rows->slice_sizes) {
    std::printf(" %d", size);
  }
  std::printf("\n");
  return {};
}

nibble::Status compute(const Layer& layer, const std::vector<float>& x, const Routes& routes) {
  nibble::Result<nibble::Experts> experts = nibble::Experts::create(view(layer));
  if (!experts) {
    return experts.error();
  }
  std::vector<float> out(kTokens * kHidden);
  if (nibble::Status status = experts->forward(x.data(), routes.ids.data(), routes.weights.data(),
                                               kTokens, kTopK, out.data());
      !status.ok()) {
    return status;
  }
  double sum = 0.0;
  for (const float value : out) {
    sum += static_cast<double>(value) * value;
  }
  std::printf("sum of squares of the output: %.6g\n", sum);
  return {};
}

nibble::Status show_plan() {
  nibble::ProductProblem problem;
  problem.tokens = 64;
  problem.num_experts = 128;
  problem.top_k = 4;
  problem.n = 5760;
  problem.k = 2880;
  const auto plan = nibble::plan_product(problem, {.arch = "sm_120"});
  if (!plan) {
    return plan.error();
  }
  std::printf("gpt-oss-120b, 64 tokens, sm_120: %d warps, %lld bytes of shared memory, %s\n",
              plan->num_warps, static_cast<long long>(plan->shared_bytes),
              plan->verified ? "verified" : "unverified");
  return {};
}

}  // namespace

int main() {
  std::uint32_t state = 1;
  const Layer layer = make_layer(state);
  const std::vector<float> x = random_floats(state, kTokens * kHidden);
  const nibble::Result<Routes> routes = choose(random_floats(state, kTokens * kExperts));
  if (!routes) {
    return fail(routes.error());
  }
  for (const nibble::Status& status :
       {show_rows(*routes), compute(layer, x, *routes), show_plan()}) {
    if (!status.ok()) {
      return fail(status);
    }
  }
  return 0;
}
