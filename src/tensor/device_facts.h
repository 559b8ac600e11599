// What plans and launches need to know of one GPU.
#pragma once

#include <cstdint>
#include <string>

namespace nibble {

struct DeviceFacts {
  std::string name;
  int index = 0;
  int sm = 0;  // compute capability, 90 for 9.0
  int num_sms = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t shared_bytes = 0;  // most that one block may ask for
};

}  // namespace nibble
