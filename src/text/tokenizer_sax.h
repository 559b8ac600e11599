// One pass over the text of a tokenizer.json: its two big tables go to flat arrays, the rest, a few
// kilobytes, becomes a tree.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "nibble/status.h"
#include "text/tokenizer_file.h"

namespace nibble::text {

// Fills vocab and merges of `file`, and `tree` with everything else (`model.vocab` and
// `model.merges` are left out). The message of a failure does not name the file.
Status scan_tokenizer_json(std::string_view json, TokenizerFile& file, nlohmann::json& tree);

}  // namespace nibble::text
