// Conversations and tools of /v1/chat/completions, from JSON to nibble::ChatPrompt.
#pragma once

#include <string>

#include "nibble/request.h"
#include "server/fields.h"

namespace nibble::server {

void read_messages(Fields& fields, ChatPrompt& prompt);
// tools, tool_choice, parallel_tool_calls.
void read_tools(Fields& fields, ChatPrompt& prompt);
// The last two of these.
void read_tool_choice(Fields& fields, ChatPrompt& prompt);
// reasoning_effort, chat_template_kwargs; the date is today's unless one is given.
void read_template(Fields& fields, ChatPrompt& prompt);

// A string, or an array of text parts, joined. Absent and null are empty.
std::string read_content(Fields& message, const char* name);

// What a client may call a function.
bool is_tool_name(const std::string& name);

// UTC, YYYY-MM-DD.
std::string today();

}  // namespace nibble::server
