/* nibble for C: quantisation, routing, expert products, launch plans, capabilities. Meanings,
 * shapes, numerics and sources are those of the C++ headers named at each part.
 *
 * - Every function returns a nibble_code and never throws. A nibble_message, if given, receives
 *   one line: what was wanted, what was found. Choices are int32_t fields that hold an enumerator;
 *   another number is refused.
 * - Structs are filled by their *_init function, then by the caller; fields not touched keep their
 *   defaults. Structs may grow in a later minor version: link what you compiled with.
 * - Arrays belong to the caller, are only used during the call and may not overlap; the weights of
 *   nibble_experts must outlive the handle.
 * - What nibble allocates is freed by nibble: handles by their *_destroy, text by nibble_free.
 * - Functions may be called from any thread; one handle by one thread at a time.
 */
/* NOLINTBEGIN(readability-identifier-naming,modernize-*): the names of C, and its headers */
#ifndef NIBBLE_C_API_H
#define NIBBLE_C_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Same order as nibble::Code. */
typedef enum nibble_code {
  NIBBLE_OK = 0,
  NIBBLE_INVALID_ARGUMENT = 1, /**< the caller asked for something that makes no sense */
  NIBBLE_UNSUPPORTED = 2,      /**< valid, but this build or machine cannot do it */
  NIBBLE_CORRUPT = 3,
  NIBBLE_NOT_FOUND = 4,
  NIBBLE_EXHAUSTED = 5,
  NIBBLE_CANCELLED = 6,
  NIBBLE_DEVICE = 7,
  NIBBLE_INTERNAL = 8 /**< misbehaviour while running, such as NaN logits */
} nibble_code;

/** Zero-terminated; longer messages are cut. Empty after NIBBLE_OK. */
typedef struct nibble_message {
  char text[512];
} nibble_message;

/** "0.1.0"; static. */
const char* nibble_version(void);
/** Lower-case English name of a code; static. */
const char* nibble_code_name(int code);
/** Frees text that nibble returned; null is allowed. */
void nibble_free(char* text);

/* ---- quantisation: nibble/quantize.h ---- */

typedef enum nibble_float_type {
  NIBBLE_F32 = 0,
  NIBBLE_BF16 = 1,
  NIBBLE_F16 = 2
} nibble_float_type;

typedef enum nibble_quant_format {
  NIBBLE_MXFP4 = 0,
  NIBBLE_NVFP4 = 1,
  NIBBLE_MXFP8 = 2
} nibble_quant_format;

typedef enum nibble_scale_rounding {
  NIBBLE_ROUND_UP = 0,
  NIBBLE_ROUND_LEAST_ERROR = 1,
  NIBBLE_ROUND_OCP_FLOOR = 2,
  NIBBLE_ROUND_NEAREST_EVEN = 3
} nibble_scale_rounding;

typedef enum nibble_scale_layout {
  NIBBLE_SCALES_LINEAR = 0,
  NIBBLE_SCALES_128X4 = 1,
  NIBBLE_SCALES_8X4 = 2,
  NIBBLE_SCALES_HOPPER = 3
} nibble_scale_layout;

typedef enum nibble_global_scale {
  NIBBLE_GLOBAL_GIVEN = 0,
  NIBBLE_GLOBAL_AMAX = 1,
  NIBBLE_GLOBAL_POWER_OF_TWO = 2
} nibble_global_scale;

typedef enum nibble_quant_backend {
  NIBBLE_BACKEND_SCALAR = 0,
  NIBBLE_BACKEND_CPU = 1,
  NIBBLE_BACKEND_CUDA = 2
} nibble_quant_backend;

/** One struct for both directions: nibble_quantize reads `dense` and writes the rest,
 * nibble_dequantize reads the rest and writes `dense`. */
typedef struct nibble_quantize_args {
  void* dense;          /**< [num_experts, rows, cols] of dtype; not written by nibble_quantize */
  uint8_t* values;      /**< [num_experts, value_bytes]; not written by nibble_dequantize */
  uint8_t* scales;      /**< [num_experts, scale_bytes]; likewise */
  float* global_scales; /**< NVFP4: [1] or [num_experts]; written unless NIBBLE_GLOBAL_GIVEN */
  int32_t num_experts;
  int32_t rows;
  int32_t cols;
  int32_t dtype;        /**< nibble_float_type */
  int32_t format;       /**< nibble_quant_format */
  int32_t rounding;     /**< nibble_scale_rounding */
  int32_t scale_layout; /**< nibble_scale_layout */
  int32_t global_scale; /**< nibble_global_scale */
  int32_t has_global_scale_per_expert;
  int32_t is_column_major;
  int32_t row_multiple;
  int32_t col_multiple;
  int32_t num_threads; /**< 0: all processors */
  int32_t backend;     /**< nibble_quant_backend */
} nibble_quantize_args;

/** Extents to allocate for, of one matrix. */
typedef struct nibble_quantized_size {
  int64_t padded_rows;
  int64_t padded_cols;
  int64_t value_bytes;
  int64_t scale_bytes;
} nibble_quantized_size;

/** What happened to the input. */
typedef struct nibble_quantize_counts {
  int64_t num_nan;
  int64_t num_inf;
  int64_t first_non_finite; /**< index, or -1 */
  int64_t num_poisoned_blocks;
  int64_t num_saturated;
  int64_t num_zeroed_blocks;
} nibble_quantize_counts;

void nibble_quantize_args_init(nibble_quantize_args* args);
nibble_code nibble_quantized_sizes(const nibble_quantize_args* args, nibble_quantized_size* size,
                                   nibble_message* message);
/** `counts` may be null. */
nibble_code nibble_quantize(const nibble_quantize_args* args, nibble_quantize_counts* counts,
                            nibble_message* message);
nibble_code nibble_dequantize(const nibble_quantize_args* args, nibble_message* message);

/* ---- routing: nibble/route.h ---- */

typedef enum nibble_route_score {
  NIBBLE_SCORE_LOGITS = 0,
  NIBBLE_SCORE_SOFTMAX = 1,
  NIBBLE_SCORE_SIGMOID = 2,
  NIBBLE_SCORE_SQRT_SOFTPLUS = 3
} nibble_route_score;

typedef struct nibble_route_args {
  const float* logits;      /**< [num_tokens, num_experts] */
  const int32_t* given_ids; /**< [num_tokens, top_k] or null */
  const void* bias;         /**< [num_experts] of bias_type, or null */
  int32_t bias_type;        /**< nibble_float_type */
  int32_t* ids;             /**< out [num_tokens, top_k] */
  float* weights;           /**< out [num_tokens, top_k] */
  int32_t num_tokens;
  int32_t num_valid_tokens; /**< -1: all */
  int32_t num_experts;
  int32_t top_k;
  int32_t score;       /**< nibble_route_score */
  int32_t renormalise; /**< 0 or 1 */
  float renormalise_epsilon;
  float scaling;
  int32_t num_groups;
  int32_t topk_groups;
  int32_t groups_count_best; /**< 0: sum of the two best keys; 1: the best */
  int32_t order_by_expert;   /**< 0: best first; 1: rising expert number */
  int32_t round_to_bf16;
  const int32_t* remap; /**< [num_experts] or null */
  int32_t num_physical; /**< 0: num_experts */
  int32_t local_begin;
  int32_t local_end; /**< both 0: all */
  int32_t compact;
} nibble_route_args;

void nibble_route_args_init(nibble_route_args* args);
nibble_code nibble_route(const nibble_route_args* args, nibble_message* message);

typedef struct nibble_ragged_args {
  const int32_t* ids;   /**< [num_tokens, top_k], -1: no expert here */
  const float* weights; /**< [num_tokens, top_k] or null */
  int32_t num_tokens;
  int32_t num_valid_tokens; /**< -1: all */
  int32_t top_k;
  int32_t num_experts;
  const int32_t* block_rows; /**< [num_block_sizes], each at least 16; null: 16, 32, 64, 128 */
  int32_t num_block_sizes;
  int32_t* slice_sizes; /**< out [num_experts] */
  int32_t* slice_offs;  /**< out [num_experts + 1] */
  int32_t* gather;      /**< out [num_tokens * top_k] */
  int32_t* scatter;     /**< out [num_tokens * top_k] */
  float* gates;         /**< out [num_tokens * top_k], or null without weights */
  int32_t* block_offs;  /**< out [num_block_sizes, num_experts + 1] */
  int32_t* schedule;    /**< out [num_block_sizes, nibble_max_blocks()] */
} nibble_ragged_args;

void nibble_ragged_args_init(nibble_ragged_args* args);
/** Places of a schedule for rows = num_tokens * top_k. */
int64_t nibble_max_blocks(int64_t rows, int32_t num_experts);
nibble_code nibble_ragged(const nibble_ragged_args* args, nibble_message* message);

/* ---- expert products: nibble/experts.h ---- */

typedef struct nibble_experts nibble_experts;

typedef struct nibble_experts_args {
  const uint8_t* gate_up_blocks; /**< [num_experts, 2 * intermediate, hidden / 32, 16] */
  const uint8_t* gate_up_scales; /**< [num_experts, 2 * intermediate, hidden / 32] */
  const uint16_t* gate_up_bias;  /**< [num_experts, 2 * intermediate] bfloat16, or null */
  const uint8_t* down_blocks;    /**< [num_experts, hidden, intermediate / 32, 16] */
  const uint8_t* down_scales;    /**< [num_experts, hidden, intermediate / 32] */
  const uint16_t* down_bias;     /**< [num_experts, hidden] bfloat16, or null */
  int32_t num_experts;
  int32_t hidden;
  int32_t intermediate;
  float alpha;
  float limit;
  int32_t num_threads; /**< 0: all processors */
  int32_t max_tokens;
  int32_t max_top_k;
  int32_t rounds_to_bf16;
  int32_t use_reference_kernels;
} nibble_experts_args;

void nibble_experts_args_init(nibble_experts_args* args);
/** On success *experts is a handle for nibble_experts_destroy; otherwise null. */
nibble_code nibble_experts_create(const nibble_experts_args* args, nibble_experts** experts,
                                  nibble_message* message);
/** x, out: [num_tokens, hidden]; ids, weights: [num_tokens, top_k]. `out` is overwritten. */
typedef struct nibble_experts_call {
  const float* x;
  const int32_t* ids;
  const float* weights;
  int32_t num_tokens;
  int32_t top_k;
  float* out;
} nibble_experts_call;
nibble_code nibble_experts_forward(nibble_experts* experts, const nibble_experts_call* call,
                                   nibble_message* message);
/** Null is allowed. */
void nibble_experts_destroy(nibble_experts* experts);

/* ---- launch plans: nibble/plan.h ---- */

typedef struct nibble_plan_args {
  const char* arch;     /**< "cpu", "sm_90", "sm_100", "sm_120" */
  int32_t num_sms;      /**< 0: that of a published device */
  int64_t shared_bytes; /**< 0: that of the architecture */
  int32_t has_tma;      /**< 0 plans without the bulk copy engine */
  int64_t tokens;
  int32_t num_experts; /**< 0: dense */
  int32_t top_k;
  int64_t n;
  int64_t k;
  int32_t has_mxfp4_weights;
  int32_t accumulates;
  int32_t is_deterministic;
} nibble_plan_args;

typedef struct nibble_plan {
  const char* form;   /**< static */
  const char* layout; /**< static */
  int32_t block_m;
  int32_t block_n;
  int32_t block_k;
  int32_t num_warps;
  int32_t num_stages;
  int32_t split_k;
  int32_t epilogue_subtile;
  int32_t is_persistent;
  int64_t padded_n;
  int64_t padded_k;
  int64_t shared_bytes;
  int64_t grid;
  int32_t verified;
} nibble_plan;

void nibble_plan_args_init(nibble_plan_args* args);
/** `reason`, if given, receives "field: rule; field: rule; ..." for nibble_free. */
nibble_code nibble_plan_product(const nibble_plan_args* args, nibble_plan* plan, char** reason,
                                nibble_message* message);

/* ---- capabilities: nibble/capabilities.h ---- */

/** Probes this machine. *text receives one line for each thing nibble looks for, "name: usable ..."
 * or "name: not usable: reason", for nibble_free. Returns NIBBLE_UNSUPPORTED, with *text all the
 * same, when nothing here can run a model. */
nibble_code nibble_capabilities(char** text, nibble_message* message);

#ifdef __cplusplus
}
#endif

#endif
/* NOLINTEND(readability-identifier-naming,modernize-*) */
