// The CUDA runtime behind tensor/device.h.
#include <cuda_runtime.h>

#include <memory>
#include <string>

#include "tensor/cuda_status.cuh"
#include "tensor/device.h"

namespace nibble {
namespace {

// Never launched: asked for, to learn whether this build has code for the device.
__global__ void probe_kernel() {}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(DeviceFacts facts) : facts_(std::move(facts)) {}

  const DeviceFacts& facts() const override { return facts_; }

  Result<std::int64_t> free_bytes() override {
    std::size_t free = 0;
    std::size_t total = 0;
    NIBBLE_RETURN_IF_ERROR(cuda_status(cudaMemGetInfo(&free, &total), "memory query"));
    return static_cast<std::int64_t>(free);
  }

  Status copy(void* to, const void* from, std::int64_t bytes, Stream stream) override {
    return cuda_status(
        cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream),
        "copy");
  }
  Status fill(void* to, std::uint8_t value, std::int64_t bytes, Stream stream) override {
    return cuda_status(cudaMemsetAsync(to, value, static_cast<std::size_t>(bytes), stream), "fill");
  }
  Status wait(Stream stream) override {
    return cuda_status(cudaStreamSynchronize(stream), "work on the stream");
  }

  Status record(const Event& event, Stream stream) override {
    return cuda_status(cudaEventRecord(event.get(), stream), "event record");
  }
  Status wait(const Event& event) override {
    return cuda_status(cudaEventSynchronize(event.get()), "work before the event");
  }
  Status wait_on(const Event& event, Stream stream) override {
    return cuda_status(cudaStreamWaitEvent(stream, event.get()), "stream wait");
  }
  Result<double> elapsed_us(const Event& begin, const Event& end) override {
    float ms = 0.0F;
    NIBBLE_RETURN_IF_ERROR(
        cuda_status(cudaEventElapsedTime(&ms, begin.get(), end.get()), "event times"));
    return 1e3 * double{ms};
  }

  Status begin_capture(Stream stream) override {
    return cuda_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                       "begin of a capture");
  }
  Status launch(const Graph& graph, Stream stream) override {
    return cuda_status(cudaGraphLaunch(graph.get(), stream), "graph launch");
  }

 private:
  Result<std::byte*> take_memory(std::int64_t bytes) override {
    void* memory = nullptr;
    const cudaError_t code = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
    if (code == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // not sticky: later launches must not see it
      NIBBLE_ASSIGN_OR_RETURN(const std::int64_t free, free_bytes());
      return device_memory_exhausted(facts_, bytes, free);
    }
    NIBBLE_RETURN_IF_ERROR(cuda_status(code, "allocation"));
    return static_cast<std::byte*>(memory);
  }
  Result<std::byte*> take_pinned(std::int64_t bytes) override {
    void* memory = nullptr;
    NIBBLE_RETURN_IF_ERROR(cuda_status(cudaMallocHost(&memory, static_cast<std::size_t>(bytes)),
                                       "allocation of pinned memory"));
    return static_cast<std::byte*>(memory);
  }
  Result<Stream> take_stream() override {
    cudaStream_t stream = nullptr;
    NIBBLE_RETURN_IF_ERROR(
        cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream"));
    return Stream{stream};
  }
  Result<CUevent_st*> take_event() override {
    cudaEvent_t event = nullptr;
    NIBBLE_RETURN_IF_ERROR(cuda_status(cudaEventCreate(&event), "event"));
    return event;
  }
  Result<CUgraphExec_st*> take_graph(Stream stream) override {
    cudaGraph_t graph = nullptr;
    NIBBLE_RETURN_IF_ERROR(cuda_status(cudaStreamEndCapture(stream, &graph), "end of a capture"));
    cudaGraphExec_t made = nullptr;
    const Status status = cuda_status(cudaGraphInstantiate(&made, graph, 0), "graph");
    (void)cudaGraphDestroy(graph);
    NIBBLE_RETURN_IF_ERROR(status);
    return made;
  }
  // A failed device cannot take anything back, and there is nobody to tell.
  void release_memory(std::byte* memory) override { (void)cudaFree(memory); }
  void release_pinned(std::byte* memory) override { (void)cudaFreeHost(memory); }
  void release_stream(Stream stream) override { (void)cudaStreamDestroy(stream); }
  void release_event(CUevent_st* event) override { (void)cudaEventDestroy(event); }
  void release_graph(CUgraphExec_st* graph) override { (void)cudaGraphExecDestroy(graph); }

  DeviceFacts facts_;
};

Status check_code(const DeviceFacts& facts) {
  cudaFuncAttributes attributes{};
  const cudaError_t code = cudaFuncGetAttributes(&attributes, probe_kernel);
  if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction) {
    (void)cudaGetLastError();
    return device_without_code(facts);
  }
  return cuda_status(code, "kernel query");
}

}  // namespace

Result<std::unique_ptr<Device>> open_cuda(int index) {
  int count = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess) {
    return device_not_usable(cudaGetErrorString(code));
  }
  if (index < 0 || index >= count) {
    return device_not_there(index, count);
  }
  NIBBLE_RETURN_IF_ERROR(cuda_status(cudaSetDevice(index), "choice of the device"));
  cudaDeviceProp properties{};
  NIBBLE_RETURN_IF_ERROR(
      cuda_status(cudaGetDeviceProperties(&properties, index), "properties of the device"));
  DeviceFacts facts{.name = properties.name,
                    .index = index,
                    .sm = 10 * properties.major + properties.minor,
                    .num_sms = properties.multiProcessorCount,
                    .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
                    .l2_bytes = properties.l2CacheSize,
                    .shared_bytes = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin)};
  NIBBLE_RETURN_IF_ERROR(check_code(facts));
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(std::move(facts)));
}

}  // namespace nibble
