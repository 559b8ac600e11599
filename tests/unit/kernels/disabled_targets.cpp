// Lets a run of the suites pretend that the processor has less: with NIBBLE_TEST_TARGET=avx2
// nothing above AVX2, with `plain` no vectors at all.
#include <hwy/targets.h>

#include <cstdlib>
#include <string_view>

namespace {

[[maybe_unused]] const bool kIsLimited = [] {
  const char* target = std::getenv("NIBBLE_TEST_TARGET");
  if (target == nullptr) {
    return false;
  }
#if HWY_ARCH_X86
  // Better targets have lower bits.
  const std::int64_t above_avx2 = HWY_AVX2 - 1;
  hwy::DisableTargets(std::string_view(target) == "avx2" ? above_avx2 : above_avx2 | HWY_AVX2);
#endif
  return true;
}();

}  // namespace
