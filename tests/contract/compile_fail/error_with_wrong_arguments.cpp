// Messages are checked against their values while compiling.
#include "base/error.h"

nibble::Status fail() {
#ifdef NIBBLE_CORRECT
  return nibble::error(nibble::Code::kCorrupt, "want {} bytes, found {}", 8, 3);
#else
  // expect: constexpr|consteval|constant expression
  return nibble::error(nibble::Code::kCorrupt, "want {} bytes, found {}", 8);
#endif
}
