// Flags of the verbs that answer API requests: serve and batch.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"

namespace nibble::cli {

// --max-num-seqs, --max-num-batched-tokens, --block-size.
void add_batching_flags(CLI::App& verb, EngineOptions& engine);

// --served-model-name; `names` stays empty without one.
CLI::Option* add_served_names(CLI::App& verb, std::vector<std::string>& names);

// `given`, or else the model as it was asked for: a name in the cache, or its folder's name.
std::vector<std::string> served_names(const std::vector<std::string>& given,
                                      const ModelFlags& flags, const std::string& folder);

}  // namespace nibble::cli
