// A device that is host memory and does everything at once, so that what drives devices can be
// tested where there is none. Counts what it hands out.
#pragma once

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "tensor/device.h"

namespace nibble::testing_support {

class HostDevice final : public Device {
 public:
  explicit HostDevice(std::int64_t memory_bytes) {
    facts_.name = "host memory";
    facts_.memory_bytes = memory_bytes;
  }

  const DeviceFacts& facts() const override { return facts_; }
  Result<std::int64_t> free_bytes() override { return facts_.memory_bytes; }
  Status copy(void* to, const void* from, std::int64_t bytes, Stream /*stream*/) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return {};
  }
  Status fill(void* to, std::uint8_t value, std::int64_t bytes, Stream /*stream*/) override {
    std::memset(to, value, static_cast<std::size_t>(bytes));
    return {};
  }
  Status wait(Stream /*stream*/) override { return {}; }
  Status record(const Event& /*event*/, Stream /*stream*/) override { return {}; }
  Status wait(const Event& /*event*/) override {
    ++num_event_waits;
    return {};
  }
  Status wait_on(const Event& /*event*/, Stream /*stream*/) override { return {}; }
  Result<double> elapsed_us(const Event& /*begin*/, const Event& /*end*/) override { return 0.0; }
  Status begin_capture(Stream /*stream*/) override { return no_graphs(); }
  Status launch(const Graph& /*graph*/, Stream /*stream*/) override { return no_graphs(); }

  int num_live = 0;  // handles not given back
  int num_event_waits = 0;

 private:
  static Status no_graphs() { return error(Code::kUnsupported, "no graphs in host memory"); }
  template <typename Handle>
  Result<Handle*> take(std::int64_t bytes) {
    ++num_live;
    return static_cast<Handle*>(
        std::aligned_alloc(256, (static_cast<std::size_t>(bytes) + 255) / 256 * 256));
  }
  void give_back(void* handle) {
    --num_live;
    std::free(handle);
  }

  Result<std::byte*> take_memory(std::int64_t bytes) override { return take<std::byte>(bytes); }
  Result<std::byte*> take_pinned(std::int64_t bytes) override { return take<std::byte>(bytes); }
  Result<Stream> take_stream() override { return take<CUstream_st>(1); }
  Result<CUevent_st*> take_event() override { return take<CUevent_st>(1); }
  Result<CUgraphExec_st*> take_graph(Stream /*stream*/) override { return no_graphs(); }
  void release_memory(std::byte* memory) override { give_back(memory); }
  void release_pinned(std::byte* memory) override { give_back(memory); }
  void release_stream(Stream stream) override { give_back(stream); }
  void release_event(CUevent_st* event) override { give_back(event); }
  void release_graph(CUgraphExec_st* graph) override { give_back(graph); }

  DeviceFacts facts_;
};

}  // namespace nibble::testing_support
