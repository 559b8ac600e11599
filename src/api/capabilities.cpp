#include "nibble/capabilities.h"

#include "api/capability_rules.h"

namespace nibble {

Capabilities capabilities() { return evaluate(probe_machine(), build_facts(), kernel_rows()); }

}  // namespace nibble
