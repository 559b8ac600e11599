// What was found on this machine, as plain data without judgement: `api` judges it by a pure
// function, so that tests can describe machines that are not there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cpu_features.h"

namespace nibble {

// A shared library opened at run time.
struct LibraryFacts {
  std::string path;          // of the file that was opened; empty: not found
  std::string missing_part;  // the first needed function that it lacks; empty: none
  int version = 0;           // as the library gives it; 0: unknown
  std::string error;         // why it could not be opened or asked
};

struct GpuFacts {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int num_sms = 0;
  std::int64_t memory_bytes = 0;
};

struct MachineFacts {
  std::string cpu_name;
  CpuFeatures cpu;
  int num_processors = 0;  // that this process may use
  std::int64_t memory_bytes = 0;
  std::int64_t available_bytes = 0;  // the container's limit included

  std::string driver_release;  // of the kernel module, "580.65.06"; empty: not loaded
  LibraryFacts driver;         // libcuda; version 13000 is CUDA 13.0
  int driver_status = 0;       // what its initialisation returned, 0 being success
  std::vector<GpuFacts> gpus;
  LibraryFacts cuda_runtime;  // libcudart; version as above
  LibraryFacts nccl;          // version 22703 is 2.27.3
};

// Reads /proc and /sys, opens the libraries and asks the driver. Takes milliseconds without a GPU,
// a few hundred with one. Never fails: what cannot be found is left empty.
MachineFacts probe_machine();

// The parts of `probe_machine`.
void probe_host(MachineFacts& facts);
void probe_gpu(MachineFacts& facts);

}  // namespace nibble
