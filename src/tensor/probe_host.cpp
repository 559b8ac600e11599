#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "base/thread_pool.h"
#include "tensor/machine_facts.h"

namespace nibble {
namespace {

// The value of the first line "name : value" or "name: value" of a file of /proc.
std::string proc_value(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (line.compare(0, name.size(), name) != 0 || colon == std::string::npos ||
        line.find_first_not_of(" \t", name.size()) != colon) {
      continue;
    }
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::int64_t number_in(const char* path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? value : -1;  // "max" is no number
}

std::int64_t meminfo_bytes(const char* name) {
  const std::string text = proc_value("/proc/meminfo", name);  // "24641548 kB"
  std::int64_t kib = 0;
  for (std::size_t i = 0; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    kib = kib * 10 + (text[i] - '0');
  }
  return kib * 1024;
}

struct CgroupMemory {
  std::int64_t limit = std::numeric_limits<std::int64_t>::max();
  std::int64_t used = 0;
};

CgroupMemory cgroup_memory() {
  CgroupMemory out;
  const std::int64_t v2 = number_in("/sys/fs/cgroup/memory.max");
  const std::int64_t v1 = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  if (v2 > 0) {
    out = {v2, number_in("/sys/fs/cgroup/memory.current")};
  } else if (v1 > 0) {
    out = {v1, number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes")};
  }
  return out;
}

}  // namespace

void probe_host(MachineFacts& facts) {
  facts.cpu_name = proc_value("/proc/cpuinfo", "model name");
  facts.cpu = cpu_features();
  facts.num_processors = available_processors();
  const CgroupMemory cgroup = cgroup_memory();
  facts.memory_bytes = std::min(meminfo_bytes("MemTotal"), cgroup.limit);
  // The container's page cache counts as used there although it would give way: a low estimate.
  facts.available_bytes = std::min(meminfo_bytes("MemAvailable"),
                                   std::max<std::int64_t>(0, cgroup.limit - cgroup.used));
}

MachineFacts probe_machine() {
  MachineFacts facts;
  probe_host(facts);
  probe_gpu(facts);
  return facts;
}

}  // namespace nibble
