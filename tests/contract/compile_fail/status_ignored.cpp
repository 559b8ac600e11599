#include "nibble/status.h"

nibble::Status save();

void shut_down() {
#ifdef NIBBLE_CORRECT
  (void)save();
#else
  save();  // expect: ignoring returned value
#endif
}
