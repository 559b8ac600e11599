// Conversations of the golden files, in the JSON spelling of openai-harmony, as ours.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "text/harmony.h"

namespace nibble::text {

std::vector<Message> conversation_of(const nlohmann::ordered_json& conversation);
nlohmann::ordered_json read_golden(const std::string& name);

}  // namespace nibble::text
