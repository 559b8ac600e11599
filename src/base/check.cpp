#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace nibble {

void check_failed(const char* condition, const char* file, int line, const std::string& values) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s\n", file, line, condition,
               values.empty() ? "" : " with", values.c_str());
  std::abort();
}

}  // namespace nibble
