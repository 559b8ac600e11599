// What every row of a kernel table says about the kernel behind it.
#pragma once

#include <cstdint>

#include "base/cpu_features.h"

namespace nibble::kernels {

enum class Backend : std::uint8_t { kScalar, kCpu, kCuda };

enum class CpuIsa : std::uint8_t {
  kAny,
  kAvx2,
  kAvx512,
  kAvx512Vnni,
  kAvx512Bf16,
  kAmxBf16,
  kAmxInt8
};

struct InstanceInfo {
  const char* name = nullptr;  // file stem, table row, test id and bench id
  Backend backend = Backend::kScalar;
  CpuIsa isa = CpuIsa::kAny;  // kCpu: the least instruction set
  int min_sm = 0;             // kCuda: the least compute capability, 90 for sm_90a
  bool verified = true;  // false: compiled, never run on its hardware; selection passes over it
};

// True when a processor with these features has the instruction set.
bool has_isa(CpuIsa isa, const CpuFeatures& cpu);

// True when this machine can run the instance.
bool runs_here(const InstanceInfo& info);

const char* backend_name(Backend backend);
const char* isa_name(CpuIsa isa);

}  // namespace nibble::kernels
