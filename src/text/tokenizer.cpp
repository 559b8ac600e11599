#include "text/tokenizer.h"

#include <optional>

#include "base/error.h"
#include "base/mapped_file.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_file.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace nibble::text {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Scratch {
  SplitScratch split;
  BpeScratch bpe;
};

std::string_view slice(const std::string& bytes, std::size_t offset, std::size_t length) {
  return std::string_view(bytes).substr(offset, length);
}

}  // namespace

struct Tokenizer::Impl {
  std::string token_bytes;  // vocabulary's arena
  std::vector<AddedToken> added;
  Vocabulary vocabulary;
  std::vector<bool> is_special;
  // The reference looks for the spellings of tokens that are not `normalized` first, then for the
  // others in what is left.
  AddedTokenMatcher first_added, second_added;
  std::optional<Bpe> bpe;
  std::optional<PreTokenizer> pre_tokenizer;

  Status fill_vocabulary(TokenizerFile& file);
  Status fill_added();
  Status check_bytes() const;
  Result<MergeTable> make_merges(const TokenizerFile& file) const;

  void encode_marked(std::string_view text, bool is_second, Scratch& scratch,
                     std::vector<std::int32_t>& out) const;
  void encode_text(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& out) const;
  void encode_valid(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& out) const;
};

Status Tokenizer::Impl::fill_vocabulary(TokenizerFile& file) {
  token_bytes = std::move(file.vocab_bytes);
  added = std::move(file.added);
  std::int32_t largest = -1;
  for (const VocabEntry& entry : file.vocab) {
    largest = std::max(largest, entry.id);
  }
  for (const AddedToken& token : added) {
    largest = std::max(largest, token.id);
  }
  vocabulary.reserve(largest + 1, file.vocab.size());
  for (std::size_t i = 0; i < file.vocab.size(); ++i) {
    const VocabEntry& entry = file.vocab[i];
    if (!vocabulary.set(entry.id, slice(token_bytes, entry.offset, entry.length))) {
      return error(Code::kCorrupt, "model.vocab, entry {}: the id {} comes twice", i, entry.id);
    }
    if (entry.is_bytes && !vocabulary.index(entry.id)) {
      return error(Code::kCorrupt, "model.vocab, entry {}: the token comes twice", i);
    }
  }
  return {};
}

Status Tokenizer::Impl::fill_added() {
  is_special.resize(static_cast<std::size_t>(vocabulary.size()));
  for (std::size_t i = 0; i < added.size(); ++i) {
    const AddedToken& token = added[i];
    if (!vocabulary.set(token.id, token.content) && vocabulary.bytes(token.id) != token.content) {
      return error(Code::kCorrupt, "added_tokens[{}].id: {} is the id of another token", i,
                   token.id);
    }
    AddedTokenMatcher& matcher = token.is_normalized ? second_added : first_added;
    const AddedTokenMatcher& other = token.is_normalized ? first_added : second_added;
    if (other.find_exact(token.content) >= 0 || !matcher.add(token.content, token.id)) {
      return error(Code::kCorrupt, "added_tokens[{}].content: the spelling comes twice", i);
    }
    is_special[static_cast<std::size_t>(token.id)] = token.is_special;
  }
  return {};
}

Status Tokenizer::Impl::check_bytes() const {
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    if (vocabulary.find({&text, 1}) < 0) {
      return error(Code::kUnsupported,
                   "model.vocab: want a token for every byte, found none for byte {:#04x}", byte);
    }
  }
  return {};
}

Result<MergeTable> Tokenizer::Impl::make_merges(const TokenizerFile& file) const {
  MergeTable table;
  table.reserve(file.merges.size());
  for (std::size_t i = 0; i < file.merges.size(); ++i) {
    const MergeEntry& entry = file.merges[i];
    const std::string_view whole =
        slice(file.merge_bytes, entry.offset, entry.left_length + entry.right_length);
    const std::int32_t left = vocabulary.find(whole.substr(0, entry.left_length));
    const std::int32_t right = vocabulary.find(whole.substr(entry.left_length));
    const std::int32_t merged = vocabulary.find(whole);
    if (left < 0 || right < 0 || merged < 0) {
      const char* const part = left < 0 ? "left part" : right < 0 ? "right part" : "result";
      return error(Code::kCorrupt, "model.merges[{}]: its {} is not in model.vocab", i, part);
    }
    table.add(left, right, {static_cast<std::uint32_t>(i), merged});
  }
  return table;
}

void Tokenizer::Impl::encode_valid(std::string_view text, Scratch& scratch,
                                   std::vector<std::int32_t>& out) const {
  pre_tokenizer->split(text, scratch.split);
  for (const Piece& piece : scratch.split.pieces) {
    bpe->encode_piece(text.substr(piece.begin, piece.end - piece.begin), scratch.bpe, out);
  }
}

void Tokenizer::Impl::encode_text(std::string_view text, Scratch& scratch,
                                  std::vector<std::int32_t>& out) const {
  while (!text.empty()) {
    const std::size_t valid = utf8_valid_prefix(text);
    if (valid > 0) {
      encode_valid(text.substr(0, valid), scratch, out);
      text.remove_prefix(valid);
      continue;
    }
    const std::size_t invalid = utf8_step(text).length;
    for (const char byte : text.substr(0, invalid)) {
      out.push_back(bpe->byte_id(static_cast<unsigned char>(byte)));
    }
    text.remove_prefix(invalid);
  }
}

void Tokenizer::Impl::encode_marked(std::string_view text, bool is_second, Scratch& scratch,
                                    std::vector<std::int32_t>& out) const {
  const AddedTokenMatcher& matcher = is_second ? second_added : first_added;
  const auto encode_between = [&](std::string_view part) {
    if (is_second) {
      encode_text(part, scratch, out);
    } else {
      encode_marked(part, true, scratch, out);
    }
  };
  std::size_t at = 0;
  while (at < text.size()) {
    const AddedTokenMatcher::Match match = matcher.find(text, at);
    encode_between(text.substr(at, match.begin - at));
    if (match.id >= 0) {
      out.push_back(match.id);
    }
    at = match.begin + match.length;
  }
}

Tokenizer::Tokenizer() : impl_(std::make_unique<Impl>()) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  NIBBLE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  return from_json(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Result<Tokenizer> Tokenizer::from_json(const std::string& path, std::string_view json) {
  NIBBLE_ASSIGN_OR_RETURN(TokenizerFile file, read_tokenizer_file(path, json));
  Tokenizer made;
  Impl& impl = *made.impl_;
  const auto build = [&]() -> Status {
    NIBBLE_ASSIGN_OR_RETURN(impl.pre_tokenizer, PreTokenizer::create(file.splits));
    NIBBLE_RETURN_IF_ERROR(impl.fill_vocabulary(file));
    NIBBLE_RETURN_IF_ERROR(impl.fill_added());
    NIBBLE_RETURN_IF_ERROR(impl.check_bytes());
    NIBBLE_ASSIGN_OR_RETURN(MergeTable merges, impl.make_merges(file));
    impl.bpe.emplace(impl.vocabulary, std::move(merges), file.ignore_merges);
    return {};
  };
  if (const Status status = build(); !status.ok()) {
    return Status(status.code(), path + ": " + status.message());
  }
  return made;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<std::int32_t> out;
  encode_to(text, special, out);
  return out;
}

void Tokenizer::encode_to(std::string_view text, SpecialTokens special,
                          std::vector<std::int32_t>& out) const {
  Scratch scratch;
  if (special == SpecialTokens::kRecognise) {
    impl_->encode_marked(text, false, scratch, out);
  } else {
    impl_->encode_text(text, scratch, out);
  }
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  return impl_->vocabulary.contains(id) ? impl_->vocabulary.bytes(id) : kReplacement;
}

std::string Tokenizer::decode(const std::vector<std::int32_t>& ids) const {
  std::string out;
  for (const std::int32_t id : ids) {
    out.append(token_bytes(id));
  }
  return out;
}

std::int32_t Tokenizer::vocab_size() const { return impl_->vocabulary.size(); }

bool Tokenizer::is_special(std::int32_t id) const {
  return impl_->vocabulary.contains(id) && impl_->is_special[static_cast<std::size_t>(id)];
}

std::int32_t Tokenizer::special_id(std::string_view spelling) const {
  const std::int32_t id = impl_->first_added.find_exact(spelling);
  return id >= 0 ? id : impl_->second_added.find_exact(spelling);
}

}  // namespace nibble::text
