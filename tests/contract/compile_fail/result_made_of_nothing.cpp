#include "nibble/status.h"

#ifdef NIBBLE_CORRECT
nibble::Result<int> result = 1;
#else
nibble::Result<int> result;  // expect: no matching function
#endif
