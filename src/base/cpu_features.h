// Instruction sets of the processor that this process runs on, as granted by the operating system.
#pragma once

namespace nibble {

struct CpuFeatures {
  bool avx2 = false;    // with FMA and F16C
  bool avx512 = false;  // F, BW, DQ, VL, CD
  bool avx512_vbmi = false;
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool avx_vnni = false;
  bool amx_bf16 = false;  // tiles granted by the kernel
  bool amx_int8 = false;
};

// Detected once. The first call asks the kernel for the AMX tile state, which lasts for the
// process.
const CpuFeatures& cpu_features();

}  // namespace nibble
