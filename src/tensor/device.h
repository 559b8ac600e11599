// One GPU, as the thread that owns it sees it: memory, streams, events, graphs. No CUDA header: the
// implementation is the only place that calls the runtime.
//
// Used by one thread. Calls that enqueue return at once; a failure of enqueued work comes back from
// the next call that waits, as kDevice, and the device stays failed: nothing is tried again on it.
// Buffers, streams, events and graphs must not outlive their device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "nibble/status.h"
#include "tensor/device_facts.h"
#include "tensor/exec.h"

struct CUevent_st;
struct CUgraphExec_st;

namespace nibble {

class Device;

namespace device_handles {

// Gives a handle back to its device.
template <auto kRelease>
struct Release {
  Device* device = nullptr;
  template <typename Handle>
  void operator()(Handle* handle) const {
    (device->*kRelease)(handle);
  }
};

}  // namespace device_handles

class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  virtual const DeviceFacts& facts() const = 0;
  // What can still be allocated.
  virtual Result<std::int64_t> free_bytes() = 0;

  // Owning handles; the functions below make them.
  class Memory;
  class PinnedMemory;
  class OwnedStream;
  class Event;
  class Graph;

  // Contents start unspecified. kExhausted, with what was wanted and what is free.
  Result<Memory> allocate(std::int64_t bytes);
  // Host memory that copies run beside the processor from and to.
  Result<PinnedMemory> allocate_pinned(std::int64_t bytes);
  Result<OwnedStream> make_stream();
  Result<Event> make_event();

  // Either side may be host or device memory; host memory that is not pinned makes it block.
  virtual Status copy(void* to, const void* from, std::int64_t bytes, Stream stream) = 0;
  virtual Status fill(void* to, std::uint8_t value, std::int64_t bytes, Stream stream) = 0;
  // Blocks until everything enqueued on `stream` is done.
  virtual Status wait(Stream stream) = 0;

  virtual Status record(const Event& event, Stream stream) = 0;
  virtual Status wait(const Event& event) = 0;
  // Work enqueued on `stream` from here on waits for the event.
  virtual Status wait_on(const Event& event, Stream stream) = 0;
  // Of two recorded events that are done.
  virtual Result<double> elapsed_us(const Event& begin, const Event& end) = 0;

  // What is enqueued on `stream` in between becomes a graph instead of running.
  virtual Status begin_capture(Stream stream) = 0;
  Result<Graph> end_capture(Stream stream);
  virtual Status launch(const Graph& graph, Stream stream) = 0;

 protected:
  virtual Result<std::byte*> take_memory(std::int64_t bytes) = 0;
  virtual Result<std::byte*> take_pinned(std::int64_t bytes) = 0;
  virtual Result<Stream> take_stream() = 0;
  virtual Result<CUevent_st*> take_event() = 0;
  virtual Result<CUgraphExec_st*> take_graph(Stream stream) = 0;
  virtual void release_memory(std::byte* memory) = 0;
  virtual void release_pinned(std::byte* memory) = 0;
  virtual void release_stream(Stream stream) = 0;
  virtual void release_event(CUevent_st* event) = 0;
  virtual void release_graph(CUgraphExec_st* graph) = 0;
};

class Device::Memory {
 public:
  Memory() = default;
  std::byte* data() const { return data_.get(); }
  std::int64_t bytes() const { return bytes_; }

 private:
  friend class Device;
  std::unique_ptr<std::byte, device_handles::Release<&Device::release_memory>> data_;
  std::int64_t bytes_ = 0;
};

class Device::PinnedMemory {
 public:
  PinnedMemory() = default;
  std::byte* data() const { return data_.get(); }
  std::int64_t bytes() const { return bytes_; }

 private:
  friend class Device;
  std::unique_ptr<std::byte, device_handles::Release<&Device::release_pinned>> data_;
  std::int64_t bytes_ = 0;
};

class Device::OwnedStream {
 public:
  OwnedStream() = default;
  Stream get() const { return stream_.get(); }

 private:
  friend class Device;
  std::unique_ptr<CUstream_st, device_handles::Release<&Device::release_stream>> stream_;
};

class Device::Event {
 public:
  Event() = default;
  CUevent_st* get() const { return event_.get(); }

 private:
  friend class Device;
  std::unique_ptr<CUevent_st, device_handles::Release<&Device::release_event>> event_;
};

class Device::Graph {
 public:
  Graph() = default;
  CUgraphExec_st* get() const { return graph_.get(); }

 private:
  friend class Device;
  std::unique_ptr<CUgraphExec_st, device_handles::Release<&Device::release_graph>> graph_;
};

// The GPU with this number. kUnsupported, with the reason: a build without CUDA, no driver, no such
// GPU, or one that this build has no code for.
Result<std::unique_ptr<Device>> open_cuda(int index);

}  // namespace nibble
