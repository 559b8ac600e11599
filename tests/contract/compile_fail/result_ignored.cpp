#include "nibble/status.h"

nibble::Result<int> load();

void start() {
#ifdef NIBBLE_CORRECT
  (void)load().has_value();
#else
  load();  // expect: ignoring returned value
#endif
}
