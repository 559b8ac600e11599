// JSON schemas as grammars. Which keywords, and which of the valid texts are generated:
// docs/structured-output.md.
#pragma once

#include <string_view>

#include "grammar/grammar.h"
#include "grammar/json_rules.h"
#include "nibble/status.h"

namespace nibble::grammar {

inline constexpr std::size_t kMaxSchemaBytes = std::size_t{256} << 10U;
inline constexpr int kMaxSchemaDepth = 64;

// Adds a rule to `builder` that reads only texts which are JSON and valid under `schema`.
// kInvalidArgument, beginning with the place in the schema ("#/properties/a/pattern: ..."), for
// what is no schema, for every keyword that is not supported (nothing is ignored but annotations),
// for patterns that are faulty or too large, and for schemas beyond the limits above.
Result<RuleId> add_json_schema(GrammarBuilder& builder, JsonRules& rules, std::string_view schema);

}  // namespace nibble::grammar
