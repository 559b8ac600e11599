#include "kernels/common/instance.h"

#include "base/error.h"

namespace nibble::kernels {

bool has_isa(CpuIsa isa, const CpuFeatures& cpu) {
  switch (isa) {
    case CpuIsa::kAny: return true;
    case CpuIsa::kAvx2: return cpu.avx2;
    case CpuIsa::kAvx512: return cpu.avx512;
    case CpuIsa::kAvx512Vnni: return cpu.avx512_vnni;
    case CpuIsa::kAvx512Bf16: return cpu.avx512_bf16;
    case CpuIsa::kAmxBf16: return cpu.amx_bf16;
    case CpuIsa::kAmxInt8: return cpu.amx_int8;
  }
  return false;
}

bool runs_here(const InstanceInfo& info) {
  return info.verified && info.backend != Backend::kCuda && has_isa(info.isa, cpu_features());
}

bool runs_on(const InstanceInfo& info, const Exec& exec) {
  if (exec.device == nullptr) {
    return runs_here(info);
  }
  return info.verified && info.backend == Backend::kCuda && info.min_sm <= exec.device->sm;
}

Status no_kernel(const char* family, const Exec& exec) {
  if (exec.device == nullptr) {
    return error(Code::kUnsupported, "{}: no kernel of this build takes such a call", family);
  }
  return error(Code::kUnsupported,
               "{}: no verified CUDA kernel of this build takes such a call on {} (compute "
               "capability {}.{}); `nibble inspect --kernels` lists them",
               family, exec.device->name, exec.device->sm / 10, exec.device->sm % 10);
}

const char* backend_name(Backend backend) {
  switch (backend) {
    case Backend::kScalar: return "scalar";
    case Backend::kCpu: return "cpu";
    case Backend::kCuda: return "cuda";
  }
  return "unknown";
}

const char* isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAny: return "any";
    case CpuIsa::kAvx2: return "avx2";
    case CpuIsa::kAvx512: return "avx512";
    case CpuIsa::kAvx512Vnni: return "avx512_vnni";
    case CpuIsa::kAvx512Bf16: return "avx512_bf16";
    case CpuIsa::kAmxBf16: return "amx_bf16";
    case CpuIsa::kAmxInt8: return "amx_int8";
  }
  return "unknown";
}

}  // namespace nibble::kernels
