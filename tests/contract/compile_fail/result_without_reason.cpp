// A result is a value or a status: a bare code carries no message.
#include "nibble/status.h"

nibble::Result<int> parse(bool good) {
  if (good) {
    return 1;
  }
#ifdef NIBBLE_CORRECT
  return nibble::Status(nibble::Code::kCorrupt, "want 8 bytes, found 3");
#else
  return nibble::Code::kCorrupt;  // expect: could not convert
#endif
}
