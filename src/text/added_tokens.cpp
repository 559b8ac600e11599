#include "text/added_tokens.h"

namespace nibble::text {

std::int32_t AddedTokenMatcher::child(std::int32_t node, char byte) const {
  std::int32_t at = nodes_[static_cast<std::size_t>(node)].first_child;
  while (at >= 0 && nodes_[static_cast<std::size_t>(at)].byte != byte) {
    at = nodes_[static_cast<std::size_t>(at)].next_sibling;
  }
  return at;
}

bool AddedTokenMatcher::add(std::string_view spelling, std::int32_t id) {
  if (spelling.empty()) {
    return false;
  }
  std::int32_t node = 0;
  for (const char byte : spelling) {
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      Node& parent = nodes_[static_cast<std::size_t>(node)];
      const Node fresh{.next_sibling = parent.first_child, .byte = byte};
      parent.first_child = next;
      nodes_.push_back(fresh);
    }
    node = next;
  }
  Node& last = nodes_[static_cast<std::size_t>(node)];
  if (last.id >= 0) {
    return false;
  }
  last.id = id;
  is_first_byte_[static_cast<unsigned char>(spelling[0])] = true;
  return true;
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_at(std::string_view text,
                                                       std::size_t begin) const {
  Match best{.begin = begin};
  std::int32_t node = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    node = child(node, text[i]);
    if (node < 0) {
      break;
    }
    if (const std::int32_t id = nodes_[static_cast<std::size_t>(node)].id; id >= 0) {
      best.length = i + 1 - begin;
      best.id = id;
    }
  }
  return best;
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, std::size_t from) const {
  for (std::size_t i = from; i < text.size(); ++i) {
    if (!is_first_byte_[static_cast<unsigned char>(text[i])]) {
      continue;
    }
    if (const Match match = longest_at(text, i); match.id >= 0) {
      return match;
    }
  }
  return {.begin = text.size()};
}

std::int32_t AddedTokenMatcher::find_exact(std::string_view spelling) const {
  const Match match = longest_at(spelling, 0);
  return match.length == spelling.size() ? match.id : -1;
}

}  // namespace nibble::text
