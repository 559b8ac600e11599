// JSON schemas in the TypeScript-like notation of harmony prompts. Rules: docs/formats/harmony.md.
#pragma once

#include <string>
#include <string_view>

namespace nibble::text {

// Type of a function's argument. Text that is not JSON, is nested deeper than 128 levels or holds
// no known schema gives `any`. Property order is kept.
std::string schema_to_typescript(std::string_view json);

}  // namespace nibble::text
