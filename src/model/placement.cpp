#include "model/placement.h"

#include "base/error.h"
#include "model/weight_placement.h"
#include "tensor/uploader.h"

namespace nibble::model {
namespace {

// Everything but the weights.
void lay_out(const Placed& what, Arena& arena, Placement& to) {
  to.cache = KvCache::lay_out(what.config, what.options, arena);
  to.memory.kv_bytes = arena.bytes();
  to.work = Workspace::lay_out(what.config, what.options, to.exec, arena);
  to.decode_step.lay_out(arena);
  to.input_block = arena.take<std::byte>(input_bytes(what.options));
  to.memory.workspace_bytes = arena.bytes() - to.memory.kv_bytes;
}

void note_files(const Placed& what, Placement& to) {
  to.memory.mapped_bytes = what.weights->checkpoint.file_bytes();
  to.memory.owned_weight_bytes = what.weights->owned_bytes;
}

Status check_room(std::int64_t wanted, const MemoryPlan& memory, Device& device) {
  NIBBLE_ASSIGN_OR_RETURN(const std::int64_t free, device.free_bytes());
  if (wanted > free) {
    return error(Code::kExhausted,
                 "{}: want {} bytes for weights, {} for the cache and {} for activations, {} of {} "
                 "are free; lower --max-model-len",
                 device.facts().name, wanted - memory.kv_bytes - memory.workspace_bytes,
                 memory.kv_bytes, memory.workspace_bytes, free, device.facts().memory_bytes);
  }
  return {};
}

// Fills what `to.arrays` points to.
Status bring_weights(const Placed& what, const ModelArrays& host, bool has_tiles, Placement& to) {
  NIBBLE_ASSIGN_OR_RETURN(Uploader uploader, Uploader::create(*to.device, &what.pool));
  if (what.weights->dummy) {
    NIBBLE_RETURN_IF_ERROR(
        make_arrays(*what.weights->dummy, host, to.arrays, what.config, uploader, to.exec));
    return to.device->wait(to.exec.stream);
  }
  NIBBLE_RETURN_IF_ERROR(upload_arrays(host, to.arrays, what.config, uploader));
  return has_tiles ? upload_tiles(host, to.arrays, what.config, what.pool, uploader) : Status();
}

}  // namespace

std::int64_t input_bytes(const ModelOptions& options) {
  Arena size;
  (void)StepInputs::lay_out(step_limits(options.max_batch_tokens, options.max_logit_rows,
                                        options.max_position, options.page_size),
                            size);
  return size.bytes();
}

Status place_on_host(const Placed& what, Placement& to) {
  if (what.options.decode == DecodePath::kPersistent) {
    return error(Code::kUnsupported, "decode path persistent: want a GPU, found the processor");
  }
  note_files(what, to);
  to.exec.pool = &what.pool;
  to.exec.trace = &what.trace;
  Arena measured;
  lay_out(what, measured, to);
  to.host_memory = Buffer<std::byte>(static_cast<std::size_t>(measured.bytes()));
  Arena arena(to.host_memory.data());
  lay_out(what, arena, to);
  if (what.weights->dummy) {
    NIBBLE_RETURN_IF_ERROR(what.weights->dummy->fill(to.exec));
    to.memory.owned_weight_bytes += what.weights->dummy->bytes();
  }
  to.arrays = host_arrays(*what.weights, what.inv_freq.data());
  if (what.pool.has_several_nodes()) {
    place_weights(
        bytes_of_workers(what.config, to.arrays, what.options.int8_experts, what.pool.size()),
        what.pool);
  }
  return {};
}

Status place_on_device(const Placed& what, Placement& to) {
  note_files(what, to);
  NIBBLE_ASSIGN_OR_RETURN(to.device, open_cuda(what.options.device_index));
  NIBBLE_ASSIGN_OR_RETURN(to.stream, to.device->make_stream());
  to.exec = {.stream = to.stream.get(), .device = &to.device->facts(), .trace = &what.trace};
  const ModelArrays host = host_arrays(*what.weights, what.inv_freq.data());
  NIBBLE_RETURN_IF_ERROR(to.decode_step.decide(host, what.config, what.options, to.exec));
  Arena measured;
  lay_out(what, measured, to);
  const bool has_tiles = uses_expert_tiles(host, what.options.activation);
  (void)place_arrays(host, what.config, has_tiles, measured);
  NIBBLE_RETURN_IF_ERROR(check_room(measured.bytes(), to.memory, *to.device));
  NIBBLE_ASSIGN_OR_RETURN(to.device_memory, to.device->allocate(measured.bytes()));
  Arena arena(to.device_memory.data());
  lay_out(what, arena, to);
  to.arrays = place_arrays(host, what.config, has_tiles, arena);
  NIBBLE_RETURN_IF_ERROR(bring_weights(what, host, has_tiles, to));
  to.memory.mapped_bytes = 0;
  to.memory.owned_weight_bytes = measured.bytes() - to.memory.kv_bytes - to.memory.workspace_bytes;
  what.weights.reset();
  return {};
}

}  // namespace nibble::model
