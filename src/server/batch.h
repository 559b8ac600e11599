// OpenAI's batch format without a server: a file of requests in, a file of responses out.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

#include "nibble/service.h"
#include "server/api_context.h"
#include "server/batch_runner.h"

namespace nibble::server {

struct BatchOptions {
  ServiceOptions service;
  ApiOptions api;
  std::string input;
  std::string output;
};

enum class BatchEnd : std::uint8_t {
  kDone,    // every line is in the output
  kFiles,   // `status`: input or output
  kModel,   // `status`: it could not be loaded
  kFailed,  // `status`: while running
};

struct BatchOutcome {
  BatchEnd end = BatchEnd::kDone;
  Status status;
  BatchProgress progress;
};

// Blocks. Goes on where an earlier run over the same files stopped: lines that are in the output
// are kept, whatever they say. Loads no model when nothing is left to do.
BatchOutcome batch(const BatchOptions& options,
                   const std::function<void(const BatchProgress&)>& on_progress);

}  // namespace nibble::server
