#include <charconv>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/moe/moe_plan.h"

namespace nibble::kernels {
namespace {

constexpr std::int64_t kHopperShared = 232448;       // 227 KiB, sm_90 and sm_100
constexpr std::int64_t kWorkstationShared = 101376;  // 99 KiB, sm_120

// Digits of "sm_120a", "12.0" and the like as 120; -1 for another text.
int read_capability(std::string_view text) {
  if (text.substr(0, 3) == "sm_") {
    text.remove_prefix(3);
    while (!text.empty() && (text.back() == 'a' || text.back() == 'f')) {
      text.remove_suffix(1);
    }
  }
  std::string digits;
  for (const char c : text) {
    if (c != '.') {
      digits += c;
    }
  }
  int value = -1;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool is_whole = failure == std::errc() && end == digits.data() + digits.size();
  return is_whole && digits.size() >= 2 && digits.size() <= 3 ? value : -1;
}

}  // namespace

Result<DeviceLimits> device_limits(std::string_view arch) {
  if (arch == "cpu") {
    return DeviceLimits{Arch::kCpu, available_processors(), 0, false, ""};
  }
  const int capability = read_capability(arch);
  if (capability < 0) {
    return error(Code::kInvalidArgument,
                 "want an architecture like cpu, sm_90, sm_100 or sm_120, got {}", arch);
  }
  if (capability < 90) {
    return error(Code::kUnsupported,
                 "{}: want compute capability 9.0 or newer (sm_90, sm_100, sm_120), or cpu", arch);
  }
  if (capability < 100) {
    return DeviceLimits{Arch::kSm90, 132, kHopperShared, true, ""};
  }
  if (capability < 110) {
    return DeviceLimits{Arch::kSm100, 148, kHopperShared, true, ""};
  }
  DeviceLimits limits{Arch::kSm120, 170, kWorkstationShared, true, ""};
  if (capability < 120 || capability >= 130) {
    limits.warning = fmt::format("{} is not known: planned by the portable rules of sm_120", arch);
  }
  return limits;
}

std::string_view arch_name(Arch arch) {
  switch (arch) {
    case Arch::kCpu: return "cpu";
    case Arch::kSm90: return "sm_90";
    case Arch::kSm100: return "sm_100";
    case Arch::kSm120: return "sm_120";
  }
  return "unknown";
}

}  // namespace nibble::kernels
