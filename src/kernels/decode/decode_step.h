// One token of one sequence through the whole model, in one persistent kernel: what
// model/gpt_oss.cpp computes with a kernel for each operation, from the embedding to the logits.
//
// A block on each multiprocessor; a producer warp streams weights through a ring in shared memory
// and runs ahead of the products; what one block computes and another needs goes through
// `exchange`, word by word: a reader waits until a word is no longer a hole. docs/kernels/decode.md
// has the phases and their speed.
//
// Weights are exact. Sums are fp32 in an order fixed by the sizes, the position and the number of
// multiprocessors; the same inputs give the same bits. Values are rounded to bf16 where the general
// path rounds them (docs/numerics.md), but for the router's inputs, which stay fp32.
//
// Every wait is bounded: a block that waits for longer than 10 s goes on with what it has and says
// so in `lost`. All blocks are resident, or the launch fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/common/instance.h"
#include "kernels/decode/device/decode_args.h"
#include "nibble/status.h"
#include "tensor/exec.h"

namespace nibble::kernels {

// kUnsupported, with what was wanted and found, where the kernel cannot run: what it is chosen by.
Status decode_step_supports(const DecodeSizes& sizes, const Exec& exec);
Status decode_step(const DecodeStepArgs& args, const Exec& exec);
std::int64_t decode_step_exchange_bytes(const DecodeSizes& sizes);
// kUnsupported: such a block does not fit on a multiprocessor.
Status decode_step_not_resident(int threads, std::size_t shared_bytes);
// Weights, and keys and values in front of `position`.
std::int64_t decode_step_bytes(const DecodeStepArgs& args, std::int32_t position);

// Every kernel of this build: none without CUDA.
std::span<const Instance<DecodeStepArgs>> decode_step_instances();

}  // namespace nibble::kernels
