#include "tensor/machine_facts.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace nibble {
namespace {

TEST(MachineFacts, HostHasAProcessorAndMemory) {
  MachineFacts facts;
  probe_host(facts);
  EXPECT_GE(facts.num_processors, 1);
  EXPECT_LE(facts.num_processors, ::sysconf(_SC_NPROCESSORS_CONF));
  const std::int64_t installed = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  EXPECT_GT(facts.memory_bytes, 64 << 20);
  EXPECT_LE(facts.memory_bytes, installed);
  EXPECT_GT(facts.available_bytes, 0);
  EXPECT_LE(facts.available_bytes, facts.memory_bytes);
}

TEST(MachineFacts, GpuProbeSaysWhyItFoundNothing) {
  MachineFacts facts;
  probe_gpu(facts);
  for (const LibraryFacts* library : {&facts.driver, &facts.cuda_runtime, &facts.nccl}) {
    if (library->path.empty()) {
      EXPECT_NE(library->error, "");
    } else if (library->missing_part.empty() && library->error.empty()) {
      EXPECT_GT(library->version, 0) << library->path;
    }
  }
  if (facts.driver.path.empty()) {
    EXPECT_TRUE(facts.gpus.empty());
  }
  for (const GpuFacts& gpu : facts.gpus) {
    EXPECT_GT(gpu.major, 0) << gpu.name;
    EXPECT_GT(gpu.memory_bytes, 0) << gpu.name;
  }
}

}  // namespace
}  // namespace nibble
