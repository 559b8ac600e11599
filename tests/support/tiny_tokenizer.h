// A hand-made tokenizer.json: the 256 bytes as ids 0 to 255, then one token for each merge.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace nibble::text {

// UTF-8 of the character that stands for `byte` in a byte-level vocabulary.
std::string alphabet_spelling(int byte);

struct TinyTokenizer {
  std::vector<std::pair<std::string, std::string>> merges;  // in the alphabet's spelling
  bool merges_as_pairs = true;                              // ["a", "b"]; otherwise "a b"
  std::string added_tokens = "[]";
  std::string pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": false})";
  std::string model_extra;  // e.g. R"(, "ignore_merges": true)"

  std::string json() const;
};

}  // namespace nibble::text
