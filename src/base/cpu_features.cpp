#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace nibble {
namespace {

#if defined(__x86_64__)
bool bit(unsigned value, int index) { return ((value >> index) & 1U) != 0; }

unsigned long long enabled_state() {
  unsigned low = 0;
  unsigned high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<unsigned long long>(high) << 32U) | low;
}

// Linux hands out the 8 KB tile state only to processes that ask for it.
bool request_tiles() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXfeatureXtiledata = 18;
  return ::syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

CpuFeatures detect() {
  CpuFeatures out;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || !bit(ecx, 27)) {
    return out;  // no XSAVE: nothing beyond SSE is usable
  }
  const bool fma_f16c = bit(ecx, 12) && bit(ecx, 29);
  const unsigned long long state = enabled_state();
  const bool ymm = (state & 0x6U) == 0x6U;
  const bool zmm = (state & 0xE6U) == 0xE6U;
  const bool tiles = (state & 0x60000U) == 0x60000U;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) {
    return out;
  }
  const unsigned max_subleaf = eax;
  out.avx2 = ymm && fma_f16c && bit(ebx, 5);
  out.avx512 = zmm && out.avx2 && bit(ebx, 16) && bit(ebx, 17) && bit(ebx, 28) && bit(ebx, 30) &&
               bit(ebx, 31);
  out.avx512_vbmi = out.avx512 && bit(ecx, 1);
  out.avx512_vnni = out.avx512 && bit(ecx, 11);
  const bool amx = tiles && bit(edx, 24) && (bit(edx, 22) || bit(edx, 25)) && request_tiles();
  out.amx_bf16 = amx && bit(edx, 22);
  out.amx_int8 = amx && bit(edx, 25);
  if (max_subleaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) {
    out.avx_vnni = ymm && bit(eax, 4);
    out.avx512_bf16 = out.avx512 && bit(eax, 5);
  }
  return out;
}
#else
CpuFeatures detect() { return {}; }
#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures kFeatures = detect();
  return kFeatures;
}

}  // namespace nibble
