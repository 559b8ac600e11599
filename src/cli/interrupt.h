// SIGINT and SIGTERM.
#pragma once

namespace nibble::cli {

// From now on the first SIGINT or SIGTERM ends the program with exit code 130 or 143 and one line
// on standard error; the terminal gets back the settings it has now. A signal that the parent
// ignores stays ignored. SIGPIPE is ignored: writes report EPIPE.
void end_on_signals();

// While it lives, SIGINT only sets a flag. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

// Whether SIGINT came since the last call of `clear_interrupt`.
bool is_interrupted();
void clear_interrupt();

}  // namespace nibble::cli
