// From the public chat types to a harmony conversation.
#pragma once

#include <vector>

#include "nibble/request.h"
#include "nibble/status.h"
#include "text/harmony.h"

namespace nibble {

// What an API calls the system prompt goes into the developer message, with the tools. Reasoning of
// past turns becomes analysis messages, calls and results go to the commentary channel. A schema in
// `format` is told to the model in the developer message.
// kInvalidArgument names the message: a tool result that answers no call, a tool or result without
// a name, no messages at all.
Result<std::vector<text::Message>> harmony_conversation(const ChatPrompt& prompt,
                                                        const ResponseFormat& format = {});

}  // namespace nibble
