// Asks driver, CUDA runtime and NCCL by opening them, so that one binary runs with and without a
// GPU and host code needs no CUDA header. The few signatures used are stable parts of their ABIs.
#include <dlfcn.h>

#include <array>
#include <fstream>
#include <initializer_list>
#include <string>

#include "tensor/machine_facts.h"

namespace nibble {
namespace {

// Of the CUDA driver API's attribute numbers.
constexpr int kMultiprocessorCount = 16;
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

// The first of `names` that opens, closed never: a driver that was initialised must stay.
void* open_first(std::initializer_list<const char*> names, LibraryFacts& facts) {
  for (const char* name : names) {
    void* handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) {
      facts.path = name;
      return handle;
    }
    const char* reason = ::dlerror();
    // The first name's reason is the telling one unless a later file exists and is broken.
    const std::string text = reason == nullptr ? "unknown error" : reason;
    if (facts.error.empty() || text.find("No such file") == std::string::npos) {
      facts.error = text;
    }
  }
  return nullptr;
}

// The function, or null with its name noted as the missing part. Its file's path is noted too.
template <typename Function>
Function* find(void* handle, const char* name, LibraryFacts& facts) {
  void* address = ::dlsym(handle, name);
  if (address == nullptr) {
    if (facts.missing_part.empty()) {
      facts.missing_part = name;
    }
    return nullptr;
  }
  Dl_info info;
  if (::dladdr(address, &info) != 0 && info.dli_fname != nullptr) {
    facts.path = info.dli_fname;
  }
  return reinterpret_cast<Function*>(address);
}

// Checks that the functions are there without calling them.
void require(void* handle, std::initializer_list<const char*> names, LibraryFacts& facts) {
  for (const char* name : names) {
    (void)find<void()>(handle, name, facts);
  }
}

int ask_version(int (*function)(int*), LibraryFacts& facts) {
  int version = 0;
  const int status = function == nullptr ? 0 : function(&version);
  if (status != 0) {
    facts.error = "asking for its version gives error " + std::to_string(status);
  }
  return version;
}

struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*count)(int*) = nullptr;
  int (*device)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
  int (*memory)(std::size_t*, int) = nullptr;
};

GpuFacts ask_gpu(const Driver& driver, int index) {
  GpuFacts gpu;
  int device = 0;
  std::array<char, 256> name{};
  std::size_t bytes = 0;
  if (driver.device(&device, index) != 0) {
    return gpu;
  }
  if (driver.name(name.data(), static_cast<int>(name.size()) - 1, device) == 0) {
    gpu.name = name.data();
  }
  (void)driver.attribute(&gpu.major, kCapabilityMajor, device);
  (void)driver.attribute(&gpu.minor, kCapabilityMinor, device);
  (void)driver.attribute(&gpu.num_sms, kMultiprocessorCount, device);
  if (driver.memory(&bytes, device) == 0) {
    gpu.memory_bytes = static_cast<std::int64_t>(bytes);
  }
  return gpu;
}

void probe_driver(MachineFacts& facts) {
  LibraryFacts& library = facts.driver;
  void* handle = open_first({"libcuda.so.1"}, library);
  if (handle == nullptr) {
    return;
  }
  Driver driver;
  driver.init = find<int(unsigned)>(handle, "cuInit", library);
  driver.count = find<int(int*)>(handle, "cuDeviceGetCount", library);
  driver.device = find<int(int*, int)>(handle, "cuDeviceGet", library);
  driver.name = find<int(char*, int, int)>(handle, "cuDeviceGetName", library);
  driver.attribute = find<int(int*, int, int)>(handle, "cuDeviceGetAttribute", library);
  driver.memory = find<int(std::size_t*, int)>(handle, "cuDeviceTotalMem_v2", library);
  library.version = ask_version(find<int(int*)>(handle, "cuDriverGetVersion", library), library);
  if (!library.missing_part.empty()) {
    return;
  }
  facts.driver_status = driver.init(0);
  int count = 0;
  if (facts.driver_status == 0) {
    facts.driver_status = driver.count(&count);
  }
  for (int index = 0; facts.driver_status == 0 && index < count; ++index) {
    facts.gpus.push_back(ask_gpu(driver, index));
  }
}

}  // namespace

void probe_gpu(MachineFacts& facts) {
  std::ifstream("/sys/module/nvidia/version") >> facts.driver_release;
  probe_driver(facts);
  if (void* runtime =
          open_first({"libcudart.so.13", "libcudart.so.12", "libcudart.so"}, facts.cuda_runtime)) {
    facts.cuda_runtime.version = ask_version(
        find<int(int*)>(runtime, "cudaRuntimeGetVersion", facts.cuda_runtime), facts.cuda_runtime);
  }
  if (void* nccl = open_first({"libnccl.so.2"}, facts.nccl)) {
    facts.nccl.version =
        ask_version(find<int(int*)>(nccl, "ncclGetVersion", facts.nccl), facts.nccl);
    // What waits with a deadline and named groups need.
    require(nccl, {"ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclCommAbort"}, facts.nccl);
  }
}

}  // namespace nibble
