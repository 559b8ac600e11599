#include "api/device_choice.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "tensor/device.h"

namespace nibble {
namespace {

Result<ChosenDevice> choose_cuda() {
  NIBBLE_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, open_cuda(0));
  const DeviceFacts& facts = device->facts();
  const std::vector<KernelRow> rows = kernel_rows();
  const std::string missing = missing_family(rows, facts);
  if (!missing.empty()) {
    return error(Code::kUnsupported, "{}: no verified {} kernel of this build runs on it",
                 facts.name, missing);
  }
  NIBBLE_ASSIGN_OR_RETURN(const std::int64_t free, device->free_bytes());
  return ChosenDevice{
      .kernels = model::KernelChoice::kCuda,
      .free_bytes = free,
      .reason = fmt::format("cuda: {}, {} of {} bytes free", facts.name, free, facts.memory_bytes)};
}

}  // namespace

std::string missing_family(std::span<const KernelRow> rows, const DeviceFacts& facts) {
  const Exec exec{.device = &facts};
  std::vector<std::string> needed;
  std::vector<std::string> found;
  for (const KernelRow& row : rows) {
    if (row.is_needed) {
      needed.emplace_back(row.family);
      if (row.info.backend == kernels::Backend::kCuda && kernels::runs_on(row.info, exec)) {
        found.emplace_back(row.family);
      }
    }
  }
  for (const std::string& family : needed) {
    if (std::find(found.begin(), found.end(), family) == found.end()) {
      return family;
    }
  }
  return {};
}

Result<ChosenDevice> choose_device(DeviceChoice choice) {
  if (choice == DeviceChoice::kCpu) {
    return ChosenDevice{.reason = "cpu: asked for"};
  }
  Result<ChosenDevice> cuda = choose_cuda();
  if (cuda || choice == DeviceChoice::kCuda) {
    return cuda;
  }
  return ChosenDevice{.reason = "cpu: " + cuda.error().message()};
}

Status check_deterministic(const ChosenDevice& device) {
  if (device.kernels != model::KernelChoice::kCuda) {
    return {};
  }
  return error(Code::kUnsupported,
               "deterministic: want the processor (--device cpu), found {}: a GPU's kernels are "
               "chosen by the rows of a step, so answers depend on what else runs",
               device.reason);
}

}  // namespace nibble
