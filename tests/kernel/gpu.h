// What the tests of all kernel families on a GPU share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "kernels/common/instance.h"
#include "tensor/device.h"
#include "unit/kernels/kernel_tester.h"

namespace nibble::kernels {

// A test that is skipped without a GPU, and fails instead where NIBBLE_NEED_GPU is set.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override;
};

// The first GPU, opened once, and a stream on it.
Device& gpu();
Exec on_gpu();
void wait_for_gpu();  // fails the test when something enqueued went wrong

// Device memory with guards on both sides. Starts with NaN in every bit unless values are given.
class OnGpu {
 public:
  explicit OnGpu(std::int64_t bytes);
  OnGpu(const void* data, std::int64_t bytes);
  template <typename T>
  explicit OnGpu(std::span<const T> values)
      : OnGpu(values.data(), static_cast<std::int64_t>(values.size_bytes())) {}
  template <typename T>
  explicit OnGpu(const std::vector<T>& values) : OnGpu(std::span<const T>(values)) {}

  template <typename T = void>
  T* data() const {
    return reinterpret_cast<T*>(memory_.data() + kGuardBytes);
  }
  std::int64_t bytes() const { return bytes_; }
  void set(const void* data);
  void poison();
  // Waits for the GPU. Also checks that the guards are as they were.
  std::vector<std::byte> get() const;
  template <typename T>
  std::vector<T> values() const {
    const std::vector<std::byte> raw = get();
    std::vector<T> out(raw.size() / sizeof(T));
    if (!raw.empty()) {
      std::memcpy(out.data(), raw.data(), raw.size());
    }
    return out;
  }
  // Of either activation type, widened.
  std::vector<float> floats(DType dtype) const;

 private:
  static constexpr std::int64_t kGuardBytes = 256;
  std::int64_t bytes_ = 0;
  Device::Memory memory_;
};

// Calls body(row) for each CUDA row that this GPU can run, verified or not, its name in the trace.
template <typename Args, typename Body>
void for_each_cuda(std::span<const Instance<Args>> table, Body&& body) {
  int count = 0;
  for (const Instance<Args>& row : table) {
    if (row.info.backend == Backend::kCuda && row.info.min_sm <= gpu().facts().sm) {
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, row.info.name);
      body(row);
      ++count;
    }
  }
  EXPECT_GT(count, 0) << "no CUDA kernel of this family was tested";
}

// Runs `launch` many times; every run must write the bytes of the first into `out`.
template <typename Launch>
void expect_same_bits_every_time(OnGpu& out, Launch&& launch, int times = 1000) {
  out.poison();
  launch();
  const std::vector<std::byte> first = out.get();
  for (int i = 1; i < times; ++i) {
    out.poison();
    launch();
    if (i % 50 == 49 || i + 1 == times) {  // most races show in any run; all runs are executed
      ASSERT_EQ(first, out.get()) << "run " << i;
    }
  }
}

}  // namespace nibble::kernels
