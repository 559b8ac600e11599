// The ordinary tokens of a vocabulary by their bytes, so that tokens which begin alike are tried
// together.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/status.h"

namespace nibble::grammar {

// Nodes in depth-first order: a node's descendants are the nodes up to `end`. Node 0 is the root.
// Immutable.
class TokenTrie {
 public:
  static constexpr std::size_t kMaxTokenBytes = 255;  // longer tokens are left out
  struct Node {
    std::uint32_t end = 0;          // first node behind the subtree
    std::uint32_t first_token = 0;  // index into tokens()
    std::uint16_t num_tokens = 0;   // that end exactly here
    std::uint8_t depth = 0;
    std::uint8_t byte = 0;
    std::uint8_t deepest = 0;  // depth of the deepest descendant, or its own
  };

  // Bytes of the token `id`; empty for ids that are no ordinary token (unused, control tokens). The
  // view must live until the next call.
  using TokenBytes = std::function<std::string_view(std::int32_t id)>;
  // kUnsupported, naming the byte, unless every byte is a token of its own: without them a grammar
  // can demand what no token spells.
  static Result<TokenTrie> create(std::int32_t vocab, const TokenBytes& bytes);

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const std::int32_t> tokens_at(const Node& node) const {
    return std::span(tokens_).subspan(node.first_token, node.num_tokens);
  }
  std::span<const std::int32_t> tokens() const { return tokens_; }
  // Empty for what is no ordinary token.
  std::string_view bytes(std::int32_t id) const;
  std::int32_t vocab() const { return vocab_; }
  std::uint32_t longest() const { return longest_; }  // bytes of the longest token

 private:
  std::vector<Node> nodes_;
  std::vector<std::int32_t> tokens_;  // by their bytes
  std::vector<std::string> bytes_;    // by id
  std::int32_t vocab_ = 0;
  std::uint32_t longest_ = 0;
};

}  // namespace nibble::grammar
