// The interactive chat.
#pragma once

#include <string>

#include "cli/host.h"
#include "nibble/request.h"

namespace nibble::cli {

struct ChatOptions {
  Request request;  // its prompt is a ChatPrompt; a system message, if any, is the first
  bool show_reasoning = false;
};

// Talks until the end of input or /exit. Failures of single answers are shown and survived.
Outcome run_chat(Host& host, Session& session, const ChatOptions& options,
                 const std::string& history_file);

}  // namespace nibble::cli
