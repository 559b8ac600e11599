#include "api/machine_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "kernels/moe/moe_plan.h"

namespace nibble {
namespace {

constexpr const char* kNoCuda = "this build has no CUDA kernels";
constexpr int kNcclMajor = 2;

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

// "13.0" of 13000.
std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// "2.27.3" of 22703 and "2.8.4" of 2804.
std::string nccl_version_text(int version) {
  const int unit = version >= 10000 ? 10000 : 1000;
  return fmt::format("{}.{}.{}", version / unit, version % unit / 100, version % 100);
}

// What stands in a capability's reason and forbids its use; empty: usable.
Capability judged(Capability item, const std::string& fault, const std::string& warning = "") {
  item.is_usable = fault.empty();
  item.reason = fault.empty() ? warning : fault;
  return item;
}

// Of the driver API.
std::string_view driver_status_text(int status) {
  switch (status) {
    case 100: return "no device is visible";
    case 802: return "the system is not ready; is the fabric manager running?";
    case 803: return "libcuda and the kernel module are of different versions";
    case 804: return "this device does not take the compatibility libcuda";
    default: return "see the driver API's error list";
  }
}

std::string library_fault(const LibraryFacts& library, std::string_view name) {
  if (library.path.empty()) {
    const bool is_absent =
        library.error.empty() || library.error.find("No such file") != std::string::npos;
    return is_absent ? fmt::format("{} was not found", name)
                     : fmt::format("{} cannot be opened: {}", name, library.error);
  }
  if (!library.missing_part.empty()) {
    return fmt::format("{} lacks {}: an incomplete or too old installation", library.path,
                       library.missing_part);
  }
  return library.error.empty() ? "" : fmt::format("{}: {}", library.path, library.error);
}

std::string driver_fault(const MachineFacts& machine, const BuildFacts& build) {
  std::string fault = library_fault(machine.driver, "libcuda.so.1");
  if (!fault.empty()) {
    return machine.driver_release.empty() ? fault
                                          : fmt::format("{}, although kernel module {} is loaded",
                                                        fault, machine.driver_release);
  }
  if (machine.driver_status != 0) {
    return fmt::format("initialisation gives error {}: {}", machine.driver_status,
                       driver_status_text(machine.driver_status));
  }
  if (!build.has_cuda) {
    return kNoCuda;
  }
  if (machine.driver.version / 1000 < build.cuda_version / 1000) {
    return fmt::format("supports CUDA {}, this build's runtime is CUDA {}: install a newer driver",
                       cuda_version_text(machine.driver.version),
                       cuda_version_text(build.cuda_version));
  }
  return "";
}

std::string nccl_fault(const LibraryFacts& nccl, int wanted) {
  if (wanted == 0) {
    return "this build does not use NCCL";
  }
  std::string fault = library_fault(nccl, "libnccl.so.2");
  if (!fault.empty()) {
    return fault;
  }
  const int major = nccl.version >= 10000 ? nccl.version / 10000 : nccl.version / 1000;
  if (major != kNcclMajor || nccl.version < wanted) {
    return fmt::format(
        "version {} found, want {}.x from {} on, which this build was compiled against",
        nccl_version_text(nccl.version), kNcclMajor, nccl_version_text(wanted));
  }
  return "";
}

}  // namespace

Capability judge_cpu(const MachineFacts& machine) {
  const CpuFeatures& cpu = machine.cpu;
  std::vector<std::string_view> sets;
  const auto note = [&](bool is_there, std::string_view name) {
    if (is_there) {
      sets.push_back(name);
    }
  };
  note(cpu.avx2, "avx2");
  note(cpu.avx512, "avx512");
  note(cpu.avx512_vbmi, "avx512_vbmi");
  note(cpu.avx512_vnni, "avx512_vnni");
  note(cpu.avx512_bf16, "avx512_bf16");
  note(cpu.avx_vnni, "avx_vnni");
  note(cpu.amx_bf16, "amx_bf16");
  note(cpu.amx_int8, "amx_int8");
  return judged(
      {.name = "cpu",
       .version = fmt::format("{}", fmt::join(sets, " ")),
       .place = fmt::format("{}, {} processors", machine.cpu_name, machine.num_processors)},
      "", sets.empty() ? "no AVX2: only the scalar references run, slowly" : "");
}

Capability judge_memory(const MachineFacts& machine) {
  return judged({.name = "memory",
                 .version = gib(machine.memory_bytes),
                 .place = gib(machine.available_bytes) + " available"},
                "");
}

Capability judge_driver(const MachineFacts& machine, const BuildFacts& build) {
  const int version = machine.driver.version;
  Capability item{
      .name = "gpu driver", .version = machine.driver_release, .place = machine.driver.path};
  if (version > 0) {
    item.version +=
        fmt::format("{}CUDA {}", item.version.empty() ? "" : ", ", cuda_version_text(version));
  }
  const bool is_older = version > 0 && version < build.cuda_version;
  return judged(item, driver_fault(machine, build),
                is_older
                    ? fmt::format("older than this build's runtime {}, of the same major version",
                                  cuda_version_text(build.cuda_version))
                    : "");
}

Capability judge_gpu(int index, const GpuFacts& gpu, const Capability& driver,
                     const BuildFacts& build) {
  const std::string capability = fmt::format("{}.{}", gpu.major, gpu.minor);
  const Capability item{
      .name = fmt::format("gpu {}", index),
      .version = gpu.major == 0 ? "" : capability,
      .place = fmt::format("{}, {} SMs, {}", gpu.name, gpu.num_sms, gib(gpu.memory_bytes))};
  if (!driver.is_usable) {
    return judged(item, build.has_cuda ? "the driver is not usable" : kNoCuda);
  }
  if (gpu.major == 0 || gpu.memory_bytes == 0) {
    return judged(item, "the driver does not answer about it");
  }
  const Result<kernels::DeviceLimits> limits = kernels::device_limits(capability);
  if (!limits) {
    return judged(item, limits.error().message());
  }
  const bool has_image =
      std::any_of(build.images.begin(), build.images.end(),
                  [&](const GpuImage& image) { return runs(image, gpu.major, gpu.minor); });
  if (!has_image) {
    return judged(item, fmt::format("no kernel image for {}: this build has {}", capability,
                                    build.image_list));
  }
  return judged(item, "", limits->warning);
}

Capability judge_group(const std::vector<GpuFacts>& gpus,
                       const std::vector<Capability>& judged_gpus) {
  const Capability item{.name = "gpu group", .version = fmt::format("{} GPUs", gpus.size())};
  for (std::size_t index = 0; index < gpus.size(); ++index) {
    if (!judged_gpus[index].is_usable) {
      return judged(item, fmt::format("gpu {} is not usable", index));
    }
    if (gpus[index].name != gpus[0].name || gpus[index].major != gpus[0].major ||
        gpus[index].minor != gpus[0].minor) {
      return judged(item,
                    fmt::format("gpu 0 is {} ({}), gpu {} is {} ({}): a group needs GPUs of one "
                                "kind; choose them with CUDA_VISIBLE_DEVICES",
                                gpus[0].name, judged_gpus[0].version, index, gpus[index].name,
                                judged_gpus[index].version));
    }
  }
  return judged(item, "");
}

Capability judge_runtime(const MachineFacts& machine, const BuildFacts& build) {
  if (build.has_cuda) {
    return judged({.name = "cuda runtime",
                   .version = cuda_version_text(build.cuda_version),
                   .place = "linked into this program"},
                  "");
  }
  const LibraryFacts& found = machine.cuda_runtime;
  const std::string fault = library_fault(found, "libcudart.so");
  return judged({.name = "cuda runtime",
                 .version = found.version > 0 ? cuda_version_text(found.version) : "",
                 .place = found.path},
                fault.empty() ? kNoCuda : fmt::format("{}; {}", kNoCuda, fault));
}

Capability judge_nccl(const MachineFacts& machine, const BuildFacts& build) {
  const LibraryFacts& nccl = machine.nccl;
  return judged({.name = "nccl",
                 .version = nccl.version > 0 ? nccl_version_text(nccl.version) : "",
                 .place = nccl.path},
                nccl_fault(nccl, build.nccl_version));
}

Capability judge_flashinfer(const BuildFacts& build) {
  return judged({.name = "flashinfer headers", .version = build.flashinfer_version},
                build.flashinfer_version.empty() ? "this build does not use them" : "");
}

}  // namespace nibble
