// Exit codes of the program: docs/command-line.md lists them for users.
#pragma once

#include <string>

#include "nibble/status.h"

namespace nibble::cli {

enum class Exit : int {
  kDone = 0,
  kFailure = 1,
  kUsage = 2,
  kModel = 3,  // missing or invalid
  kDoesNotFit = 4,
  kUnsupported = 5,  // hardware or driver
  kAddressInUse = 6,
  kLost = 7,  // rank or device
  kRegression = 8,
  kInterrupted = 130,
  kTerminated = 143,
};

// What was being done when a Status came back: the same code means different things.
enum class During {
  kLoad,      // reading a model: what is missing, broken or unknown is the model
  kRun,       // computing or writing: what is missing is a file of the user
  kHardware,  // probing the machine: what is unsupported is the hardware
};

Exit exit_for(Code code, During during);

// How a verb ended. A message is printed as one line on standard error, `done` has none.
struct Outcome {
  Exit exit = Exit::kDone;
  std::string message;

  bool is_done() const { return exit == Exit::kDone; }
};

Outcome done();
Outcome failed(const Status& status, During during);
Outcome wrong_usage(std::string message);

}  // namespace nibble::cli
