/* The layer of moe_layer.cpp through the C header. */
#include <nibble/c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kTokens = 6, kExperts = 8, kTopK = 2, kHidden = 64, kIntermediate = 96 };
enum {
  kGateUpBytes = kExperts * 2 * kIntermediate * kHidden / 2,
  kDownBytes = kExperts * kHidden * kIntermediate / 2
};

static uint8_t gate_up_blocks[kGateUpBytes], gate_up_scales[kGateUpBytes / 16];
static uint8_t down_blocks[kDownBytes], down_scales[kDownBytes / 16];
static float x[kTokens * kHidden], logits[kTokens * kExperts], out[kTokens * kHidden];
static int32_t ids[kTokens * kTopK];
static float weights[kTokens * kTopK];

static uint32_t state = 1;
static uint32_t next(void) {
  state = state * 1664525U + 1013904223U;
  return state >> 16U;
}
static void fill_bytes(uint8_t* bytes, int count) {
  for (int i = 0; i < count; ++i) {
    bytes[i] = (uint8_t)next();
  }
}
static void fill_floats(float* values, int count) {
  for (int i = 0; i < count; ++i) {
    values[i] = (float)(next() % 2048) / 1024.0F - 1.0F;
  }
}

static void check(nibble_code code, const nibble_message* message) {
  if (code != NIBBLE_OK) {
    fprintf(stderr, "%s: %s\n", nibble_code_name(code), message->text);
    exit(1);
  }
}

static void choose_experts(void) {
  nibble_message message;
  nibble_route_args args;
  nibble_route_args_init(&args);
  args.logits = logits;
  args.ids = ids;
  args.weights = weights;
  args.num_tokens = kTokens;
  args.num_experts = kExperts;
  args.top_k = kTopK;
  check(nibble_route(&args, &message), &message);
}

static void run_experts(void) {
  nibble_message message;
  nibble_experts* experts = NULL;
  nibble_experts_args args;
  nibble_experts_args_init(&args);
  args.gate_up_blocks = gate_up_blocks;
  args.gate_up_scales = gate_up_scales;
  args.down_blocks = down_blocks;
  args.down_scales = down_scales;
  args.num_experts = kExperts;
  args.hidden = kHidden;
  args.intermediate = kIntermediate;
  check(nibble_experts_create(&args, &experts, &message), &message);
  const nibble_experts_call call = {x, ids, weights, kTokens, kTopK, out};
  check(nibble_experts_forward(experts, &call, &message), &message);
  nibble_experts_destroy(experts);
  double sum = 0.0;
  for (int i = 0; i < kTokens * kHidden; ++i) {
    sum += (double)out[i] * out[i];
  }
  printf("sum of squares of the output: %.6g\n", sum);
}

static void ask_for_a_plan(void) {
  nibble_message message;
  nibble_plan plan;
  char* reason = NULL;
  nibble_plan_args args;
  nibble_plan_args_init(&args);
  args.arch = "sm_120";
  args.tokens = 64;
  args.num_experts = 128;
  args.top_k = 4;
  args.n = 5760;
  args.k = 2880;
  check(nibble_plan_product(&args, &plan, &reason, &message), &message);
  printf("gpt-oss-120b, 64 tokens, sm_120: %d warps, %lld bytes of shared memory, %s\n",
         plan.num_warps, (long long)plan.shared_bytes, plan.verified ? "verified" : "unverified");
  printf("because %s\n", reason);
  nibble_free(reason);
}

static void show_this_machine(void) {
  nibble_message message;
  char* text = NULL;
  if (nibble_capabilities(&text, &message) != NIBBLE_OK) {
    printf("nothing can run here: %s\n", message.text);
  }
  printf("%s", text == NULL ? "" : text);
  nibble_free(text);
}

int main(void) {
  printf("nibble %s\n", nibble_version());
  fill_bytes(gate_up_blocks, kGateUpBytes);
  memset(gate_up_scales, 122, sizeof(gate_up_scales));
  fill_bytes(down_blocks, kDownBytes);
  memset(down_scales, 122, sizeof(down_scales));
  fill_floats(x, kTokens * kHidden);
  fill_floats(logits, kTokens * kExperts);
  choose_experts();
  run_experts();
  ask_for_a_plan();
  show_this_machine();
  return 0;
}
