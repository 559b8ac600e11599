#include "cli/exit_code.h"

#include <utility>

namespace nibble::cli {

Exit exit_for(Code code, During during) {
  switch (code) {
    case Code::kOk: return Exit::kDone;
    case Code::kInvalidArgument: return Exit::kUsage;
    case Code::kUnsupported: return during == During::kHardware ? Exit::kUnsupported : Exit::kModel;
    case Code::kCorrupt: return Exit::kModel;
    case Code::kNotFound: return during == During::kLoad ? Exit::kModel : Exit::kFailure;
    case Code::kExhausted: return Exit::kDoesNotFit;
    case Code::kCancelled: return Exit::kInterrupted;
    case Code::kDevice: return Exit::kLost;
    case Code::kInternal: return Exit::kFailure;
  }
  return Exit::kFailure;
}

Outcome done() { return {}; }

Outcome failed(const Status& status, During during) {
  return {exit_for(status.code(), during), status.message()};
}

Outcome wrong_usage(std::string message) { return {Exit::kUsage, std::move(message)}; }

}  // namespace nibble::cli
