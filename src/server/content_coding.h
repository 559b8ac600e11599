// gzip, as HTTP uses it (RFC 1952, RFC 9110 section 8.4).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "nibble/status.h"

namespace nibble::server {

// The value of an Accept-Encoding header: does it allow gzip?
bool accepts_gzip(std::string_view accepted);

// The fastest level: what a reply gains beyond it costs more time than it saves.
std::string gzip(std::string_view bytes);

// kCorrupt: no whole gzip stream, or more behind it. kExhausted: more than `most_bytes` come out of
// it; no more than those are ever in memory.
Result<std::string> gunzip(std::string_view bytes, std::size_t most_bytes);

}  // namespace nibble::server
