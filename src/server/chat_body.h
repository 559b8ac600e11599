// Conversations and tools of /v1/chat/completions, from JSON to nibble::ChatPrompt.
#pragma once

#include <optional>
#include <string>

#include "nibble/request.h"
#include "server/fields.h"

namespace nibble::server {

void read_messages(Fields& fields, ChatPrompt& prompt);
// tools, tool_choice, parallel_tool_calls.
void read_tools(Fields& fields, ChatPrompt& prompt);
// The last two of these.
void read_tool_choice(Fields& fields, ChatPrompt& prompt);
// Name, description and strictness of one function, and the schema of its arguments from the field
// of the name `schema`.
Tool read_function(Fields& fields, const char* schema);
// reasoning_effort, chat_template_kwargs; the date is today's unless one is given.
void read_template(Fields& fields, ChatPrompt& prompt);

std::optional<ReasoningEffort> read_effort(Fields& fields, const char* name);

// A string, or an array of text parts, joined. Absent and null are empty.
std::string read_content(Fields& message, const char* name);

// UTC, YYYY-MM-DD.
std::string today();

}  // namespace nibble::server
