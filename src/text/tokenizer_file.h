// The contents of a tokenizer.json, checked field by field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/status.h"

namespace nibble::text {

// What a Split does with the matches of its pattern; names as in the file.
enum class SplitBehavior : std::uint8_t {
  kIsolated,
  kRemoved,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

struct SplitRule {
  std::string pattern;  // for PCRE2
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // matches and the text between them change roles
  std::string field;    // where in the file, for messages
};

struct VocabEntry {
  std::uint32_t offset = 0, length = 0;  // in TokenizerFile::vocab_bytes
  std::int32_t id = -1;
  bool is_bytes = true;  // false: the spelling has characters outside the byte alphabet
};

struct MergeEntry {
  std::uint32_t offset = 0, left_length = 0, right_length = 0;  // in merge_bytes
};

struct AddedToken {
  std::int32_t id = -1;
  std::string content;
  bool is_special = false;
  bool is_normalized = false;
};

struct TokenizerFile {
  std::string vocab_bytes;
  std::vector<VocabEntry> vocab;  // in the file's order
  std::string merge_bytes;
  std::vector<MergeEntry> merges;  // by rank
  std::vector<AddedToken> added;
  std::vector<SplitRule> splits;  // applied one after the other, each inside the pieces of the last
  bool ignore_merges = false;
};

// kCorrupt or kUnsupported: one line, `path: field: what was wanted, what was found`.
Result<TokenizerFile> read_tokenizer_file(const std::string& path, std::string_view json);

}  // namespace nibble::text
