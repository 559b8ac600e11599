#include "tensor/device.h"

#include "base/error.h"

namespace nibble {

Result<Device::Memory> Device::allocate(std::int64_t bytes) {
  Memory out;
  if (bytes > 0) {
    NIBBLE_ASSIGN_OR_RETURN(std::byte* const data, take_memory(bytes));
    out.data_ = {data, {this}};
    out.bytes_ = bytes;
  }
  return out;
}

Result<Device::PinnedMemory> Device::allocate_pinned(std::int64_t bytes) {
  PinnedMemory out;
  if (bytes > 0) {
    NIBBLE_ASSIGN_OR_RETURN(std::byte* const data, take_pinned(bytes));
    out.data_ = {data, {this}};
    out.bytes_ = bytes;
  }
  return out;
}

Result<Device::OwnedStream> Device::make_stream() {
  NIBBLE_ASSIGN_OR_RETURN(const Stream stream, take_stream());
  OwnedStream out;
  out.stream_ = {stream, {this}};
  return out;
}

Result<Device::Event> Device::make_event() {
  NIBBLE_ASSIGN_OR_RETURN(CUevent_st* const event, take_event());
  Event out;
  out.event_ = {event, {this}};
  return out;
}

Result<Device::Graph> Device::end_capture(Stream stream) {
  NIBBLE_ASSIGN_OR_RETURN(CUgraphExec_st* const graph, take_graph(stream));
  Graph out;
  out.graph_ = {graph, {this}};
  return out;
}

}  // namespace nibble
