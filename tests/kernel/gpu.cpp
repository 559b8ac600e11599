#include "kernel/gpu.h"

#include <cstdlib>
#include <memory>

namespace nibble::kernels {
namespace {

struct OpenGpu {
  std::unique_ptr<Device> device;
  Device::OwnedStream stream;
  std::string failure;
};

OpenGpu& open() {
  static OpenGpu all = [] {
    OpenGpu out;
    Result<std::unique_ptr<Device>> device = open_cuda(0);
    if (!device) {
      out.failure = device.error().message();
      return out;
    }
    out.device = std::move(*device);
    Result<Device::OwnedStream> stream = out.device->make_stream();
    if (!stream) {
      out.failure = stream.error().message();
      return out;
    }
    out.stream = std::move(*stream);
    return out;
  }();
  return all;
}

}  // namespace

void GpuTest::SetUp() {
  const std::string& failure = open().failure;
  if (!failure.empty() && std::getenv("NIBBLE_NEED_GPU") == nullptr) {
    GTEST_SKIP() << failure;
  }
  ASSERT_EQ(failure, "");
}

Device& gpu() { return *open().device; }

Exec on_gpu() { return {.stream = open().stream.get(), .device = &gpu().facts()}; }

void wait_for_gpu() {
  const Status status = gpu().wait(on_gpu().stream);
  ASSERT_TRUE(status.ok()) << status.message();
}

OnGpu::OnGpu(std::int64_t bytes) : bytes_(bytes) {
  Result<Device::Memory> memory = gpu().allocate(bytes + 2 * kGuardBytes);
  EXPECT_TRUE(memory.has_value()) << memory.error().message();
  memory_ = std::move(*memory);
  EXPECT_TRUE(gpu().fill(memory_.data(), 0xFF, memory_.bytes(), on_gpu().stream).ok());
}

OnGpu::OnGpu(const void* data, std::int64_t bytes) : OnGpu(bytes) { set(data); }

void OnGpu::set(const void* data) {
  if (bytes_ > 0) {
    EXPECT_TRUE(gpu().copy(this->data(), data, bytes_, on_gpu().stream).ok());
    wait_for_gpu();
  }
}

void OnGpu::poison() { EXPECT_TRUE(gpu().fill(data(), 0xFF, bytes_, on_gpu().stream).ok()); }

std::vector<std::byte> OnGpu::get() const {
  std::vector<std::byte> all(static_cast<std::size_t>(memory_.bytes()));
  EXPECT_TRUE(gpu().copy(all.data(), memory_.data(), memory_.bytes(), on_gpu().stream).ok());
  wait_for_gpu();
  const auto is_guard = [](std::byte value) { return value == std::byte{0xFF}; };
  EXPECT_TRUE(std::all_of(all.begin(), all.begin() + kGuardBytes, is_guard))
      << "written before the start";
  EXPECT_TRUE(std::all_of(all.end() - kGuardBytes, all.end(), is_guard)) << "written past the end";
  return {all.begin() + kGuardBytes, all.end() - kGuardBytes};
}

std::vector<float> OnGpu::floats(DType dtype) const {
  const std::vector<std::byte> raw = get();
  std::vector<float> out;
  for (std::int64_t i = 0; i < bytes_ * 8 / dtype_bits(dtype); ++i) {
    out.push_back(load_element(raw.data(), dtype, i));
  }
  return out;
}

}  // namespace nibble::kernels
