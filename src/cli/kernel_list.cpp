#include "cli/kernel_list.h"

#include <nlohmann/json.hpp>

namespace nibble::cli {

nlohmann::ordered_json kernel_list(const std::vector<KernelCapability>& kernels) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const KernelCapability& kernel : kernels) {
    list.push_back({{"family", kernel.family},
                    {"name", kernel.name},
                    {"backend", kernel.backend},
                    {"needs", kernel.needs},
                    {"needed", kernel.is_needed},
                    {"verified", kernel.is_verified},
                    {"runnable", kernel.is_runnable},
                    {"reason", kernel.reason}});
  }
  return list;
}

}  // namespace nibble::cli
