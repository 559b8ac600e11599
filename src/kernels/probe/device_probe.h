// Limits of a GPU, measured now: what `nibble bench` divides by when it says "of the peak" there.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/common/instance.h"
#include "nibble/status.h"
#include "tensor/device.h"
#include "tensor/exec.h"

namespace nibble::kernels {

enum class DeviceLimit : std::uint8_t {
  kRead,          // bytes a second that all multiprocessors read together
  kBf16Products,  // operations a second of the best bf16 matrix instruction, sums in fp32
};

struct DeviceProbeArgs {
  DeviceLimit limit = DeviceLimit::kRead;
  // kRead: what is read, 16-byte aligned. kBf16Products: bf16 operands, 1,024-byte aligned.
  const void* data = nullptr;
  std::int64_t bytes = 0;           // kRead: a multiple of 16. kBf16Products: at least 64 KiB
  std::int32_t rounds = 1;          // kBf16Products: repetitions of 64 products
  std::uint32_t* result = nullptr;  // on the GPU, zeroed before; so that nothing can be left out:
                                    // kRead: exclusive or of all 4-byte words
                                    // kBf16Products: bits of one sum, 64 rounds of row times column
  double* work = nullptr;           // on the host: bytes or operations of this call
};

// Every kernel of this build: none without CUDA. The last row that accepts a call runs it.
std::span<const Instance<DeviceProbeArgs>> device_probe_instances();

// Median of five runs after a first one. Takes `bytes` of the device's memory meanwhile: use
// several times its L2. kUnsupported: no kernel for this device; kExhausted: the memory.
Result<double> device_read_bandwidth(Device& device, std::int64_t bytes);
// Likewise, runs of about 20 ms on random operands.
Result<double> device_bf16_peak(Device& device);

}  // namespace nibble::kernels
