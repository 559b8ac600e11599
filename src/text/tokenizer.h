// Byte-level BPE from a Hugging Face `tokenizer.json`, exact and linear in the length of the input.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/status.h"

namespace nibble::text {

enum class SpecialTokens : std::uint8_t {
  kAsText,     // user text: spellings of special tokens stay ordinary text
  kRecognise,  // rendered prompts: the spelling of an added token becomes its id
};

class Tokenizer {
 public:
  // kNotFound without `tokenizer.json`; kCorrupt or kUnsupported, one line naming the file and the
  // field.
  static Result<Tokenizer> load(const std::string& folder);
  static Result<Tokenizer> from_json(const std::string& path, std::string_view json);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Invalid UTF-8 is encoded byte by byte, so decode(encode(s)) == s for every s. Thread-safe.
  std::vector<std::int32_t> encode(std::string_view text, SpecialTokens special) const;
  // Appends; lets a renderer build a prompt without copies.
  void encode_to(std::string_view text, SpecialTokens special,
                 std::vector<std::int32_t>& out) const;

  // Bytes of a token; special tokens give their spelling; an id outside the vocabulary gives
  // U+FFFD.
  std::string_view token_bytes(std::int32_t id) const;
  std::string decode(const std::vector<std::int32_t>& ids) const;  // raw bytes

  std::int32_t vocab_size() const;  // largest id + 1
  bool is_special(std::int32_t id) const;
  // Id of an added token by its exact spelling; -1 if there is none.
  std::int32_t special_id(std::string_view spelling) const;

 private:
  Tokenizer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nibble::text
