#include "kernels/decode/decode_step.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/expert_tiles.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<DecodeStepArgs> row;
#include "kernels/decode_step_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

// What the kernel's registers and shared memory are cut for (device/decode_shared.cuh).
struct Limit {
  const char* what;
  std::int64_t most;
  std::int64_t found;
};

Status check_limits(const DecodeSizes& sizes) {
  const auto share = [&](std::int32_t count) {
    return decode_largest_share(count, sizes.num_blocks);
  };
  const Limit limits[] = {
      {"layers", kDecodeMaxLayers, sizes.num_layers},
      {"hidden", 2880, sizes.hidden},
      {"intermediate", 2880, sizes.intermediate},
      {"channels of all heads", 4096, sizes.q_width()},
      {"experts", 128, sizes.num_experts},
      {"experts a token", 4, sizes.top_k},
      {"heads of a key head", 8, sizes.group()},
      {"multiprocessors", 160, sizes.num_blocks},
      {"rows of q, k and v a multiprocessor", 128, share(sizes.qkv_width())},
      {"columns of hidden a multiprocessor", 24, share(sizes.hidden)},
      {"bands of gate/up a multiprocessor", 11, share(sizes.top_k * sizes.gate_up_bands())},
      {"bands of down a multiprocessor", 11, share(sizes.top_k * sizes.down_bands())},
      {"kv heads", sizes.num_blocks, sizes.num_kv_heads},
      {"tokens in the vocabulary", 1 << 23, sizes.vocab},
  };
  for (const Limit& limit : limits) {
    if (limit.found > limit.most) {
      return error(Code::kUnsupported, "decode_step: want at most {} {}, found {}", limit.most,
                   limit.what, limit.found);
    }
  }
  return {};
}

}  // namespace

Status decode_step_supports(const DecodeSizes& sizes, const Exec& exec) {
  if (exec.device == nullptr || exec.device->sm / 10 != 9) {
    return error(Code::kUnsupported, "decode_step: want a GPU of compute capability 9.x, found {}",
                 exec.device == nullptr ? std::string("none") : exec.device->name);
  }
  if (sizes.hidden % 32 != 0 || sizes.intermediate % 32 != 0 || sizes.page_size < 32 ||
      !std::has_single_bit(static_cast<std::uint32_t>(sizes.page_size))) {
    return error(Code::kUnsupported,
                 "decode_step: want hidden and intermediate in multiples of 32, tokens of a page a "
                 "power of two from 32 on, found {}, {}, {}",
                 sizes.hidden, sizes.intermediate, sizes.page_size);
  }
  if (sizes.num_kv_heads < 1 || sizes.num_heads % sizes.num_kv_heads != 0 ||
      sizes.num_blocks != exec.device->num_sms || sizes.num_blocks < 4) {
    return error(Code::kUnsupported,
                 "decode_step: want whole groups of heads and a block for each of {} "
                 "multiprocessors, found {} heads on {} and {} blocks",
                 exec.device->num_sms, sizes.num_heads, sizes.num_kv_heads, sizes.num_blocks);
  }
  NIBBLE_RETURN_IF_ERROR(check_limits(sizes));
  if (decode_step_instances().empty()) {
    return error(Code::kUnsupported, "decode_step: this build has no kernel for it");
  }
  return {};
}

std::span<const Instance<DecodeStepArgs>> decode_step_instances() {
  static const std::vector<Instance<DecodeStepArgs>> kRows = {
#define NIBBLE_INSTANCE(row) row,
#include "kernels/decode_step_instances.inc"
#undef NIBBLE_INSTANCE
  };
  return kRows;
}

Status decode_step_not_resident(int threads, std::size_t shared_bytes) {
  return error(Code::kUnsupported,
               "decode_step: want a block of {} threads and {} bytes of shared memory resident on "
               "each multiprocessor, found no room",
               threads, shared_bytes);
}

std::int64_t decode_step_exchange_bytes(const DecodeSizes& sizes) {
  return sizes.num_layers * DecodeExchange(sizes).words * 4;
}

std::int64_t decode_step_bytes(const DecodeStepArgs& args, std::int32_t position) {
  const DecodeSizes& sizes = args.sizes;
  const std::int64_t hidden = sizes.hidden;
  const std::int64_t dense = 2 * hidden * (sizes.qkv_width() + sizes.q_width() + sizes.num_experts);
  const std::int64_t experts =
      sizes.top_k *
      (std::int64_t{sizes.gate_up_bands()} * ((hidden + 63) / 64) +
       std::int64_t{sizes.down_bands()} * ((sizes.intermediate + 63) / 64)) *
      (formats::kChunkValueBytes + formats::kChunkScaleBytes);
  std::int64_t bytes = 2 * hidden * sizes.vocab;
  for (const DecodeLayer& layer : args.layers) {
    const std::int64_t keys = layer.window == 0 ? position : std::min(position, layer.window - 1);
    bytes += dense + experts + 4 * keys * sizes.kv_width();
  }
  return bytes;
}

Status decode_step(const DecodeStepArgs& args, const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(decode_step_supports(args.sizes, exec));
  if (static_cast<std::int32_t>(args.layers.size()) != args.sizes.num_layers) {
    return error(Code::kInvalidArgument, "decode_step: want {} layers, got {}",
                 args.sizes.num_layers, args.layers.size());
  }
  return run_best("decode_step", decode_step_instances(), args, exec);
}

}  // namespace nibble::kernels
