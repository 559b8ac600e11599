// What every row of a kernel table says about the kernel behind it.
#pragma once

#include <cstdint>
#include <span>

#include "base/cpu_features.h"
#include "nibble/status.h"
#include "tensor/exec.h"
#include "tensor/kernel_trace.h"

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

// True when this processor can run the instance.
bool runs_here(const InstanceInfo& info);

// True when the instance can run where `exec` says: on its GPU, or on this processor.
bool runs_on(const InstanceInfo& info, const Exec& exec);

// One row of a family's table. Rows stand from the plainest to the best.
template <typename Args>
struct Instance {
  InstanceInfo info;
  bool (*accepts)(const Args& args) = nullptr;  // dtypes and sizes, already validated
  Status (*run)(const Args& args, const Exec& exec) = nullptr;
};

// The last row that runs where `exec` says and that accepts `args`; null when there is none.
template <typename Args>
const Instance<Args>* select(std::span<const Instance<Args>> table, const Args& args,
                             const Exec& exec) {
  const Instance<Args>* best = nullptr;
  for (const Instance<Args>& row : table) {
    if (runs_on(row.info, exec) && row.accepts(args)) {
      best = &row;
    }
  }
  return best;
}

// kUnsupported: the family has no kernel for this call.
Status no_kernel(const char* family, const Exec& exec);

// Runs what `select` finds.
template <typename Args>
Status run_best(const char* family, std::span<const Instance<Args>> table, const Args& args,
                const Exec& exec) {
  const Instance<Args>* best = select(table, args, exec);
  if (best == nullptr) {
    return no_kernel(family, exec);
  }
  if (exec.trace != nullptr) {
    exec.trace->note(best->info.name);
  }
  return best->run(args, exec);
}

// Makes a scalar reference a row: it ignores where it runs.
template <auto kReference, typename Args>
Status run_reference(const Args& args, const Exec& /*exec*/) {
  return kReference(args);
}
template <typename Args>
bool accepts_all(const Args& /*args*/) {
  return true;
}

const char* backend_name(Backend backend);
const char* isa_name(CpuIsa isa);

}  // namespace nibble::kernels
