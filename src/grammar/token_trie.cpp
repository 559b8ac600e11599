#include "grammar/token_trie.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"

namespace nibble::grammar {
namespace {

// Ids of the ordinary tokens in the order of their bytes.
std::vector<std::int32_t> sorted_tokens(const std::vector<std::string>& bytes) {
  std::vector<std::int32_t> ids;
  for (std::size_t id = 0; id < bytes.size(); ++id) {
    if (!bytes[id].empty()) {
      ids.push_back(static_cast<std::int32_t>(id));
    }
  }
  std::sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) {
    const std::string& first = bytes[static_cast<std::size_t>(a)];
    const std::string& second = bytes[static_cast<std::size_t>(b)];
    return std::tie(first, a) < std::tie(second, b);
  });
  return ids;
}

}  // namespace

Result<TokenTrie> TokenTrie::create(std::int32_t vocab, const TokenBytes& bytes) {
  TokenTrie trie;
  trie.vocab_ = vocab;
  for (std::int32_t id = 0; id < vocab; ++id) {
    const std::string_view view = bytes(id);
    trie.bytes_.emplace_back(view.size() <= kMaxTokenBytes ? view : std::string_view());
  }
  trie.nodes_.emplace_back();
  std::vector<std::uint32_t> path = {0};  // open nodes, the root first
  const auto close_to = [&](std::size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) {
      Node& closed = trie.nodes_[path.back()];
      Node& parent = trie.nodes_[path[path.size() - 2]];
      closed.end = static_cast<std::uint32_t>(trie.nodes_.size());
      parent.deepest = std::max(parent.deepest, closed.deepest);
    }
  };
  std::string_view previous;
  bool has_byte[256] = {};
  for (const std::int32_t id : sorted_tokens(trie.bytes_)) {
    const std::string& token = trie.bytes_[static_cast<std::size_t>(id)];
    const auto shared = static_cast<std::size_t>(
        std::mismatch(token.begin(), token.end(), previous.begin(), previous.end()).first -
        token.begin());
    close_to(shared);
    for (std::size_t i = shared; i < token.size(); ++i) {
      path.push_back(static_cast<std::uint32_t>(trie.nodes_.size()));
      trie.nodes_.push_back({.first_token = static_cast<std::uint32_t>(trie.tokens_.size()),
                             .depth = static_cast<std::uint8_t>(i + 1),
                             .byte = static_cast<std::uint8_t>(token[i]),
                             .deepest = static_cast<std::uint8_t>(i + 1)});
    }
    ++trie.nodes_[path.back()].num_tokens;
    trie.tokens_.push_back(id);
    trie.longest_ = std::max(trie.longest_, static_cast<std::uint32_t>(token.size()));
    if (token.size() == 1) {
      has_byte[static_cast<std::uint8_t>(token[0])] = true;
    }
    previous = token;
  }
  close_to(0);
  trie.nodes_[0].end = static_cast<std::uint32_t>(trie.nodes_.size());
  const bool* missing = std::find(std::begin(has_byte), std::end(has_byte), false);
  if (missing != std::end(has_byte)) {
    return error(Code::kUnsupported,
                 "constrained output: want a token for every single byte, found none for 0x{:02x}",
                 missing - std::begin(has_byte));
  }
  return trie;
}

std::string_view TokenTrie::bytes(std::int32_t id) const {
  return id >= 0 && id < vocab_ ? std::string_view(bytes_[static_cast<std::size_t>(id)])
                                : std::string_view();
}

}  // namespace nibble::grammar
