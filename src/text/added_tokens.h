// Finds the spellings of added tokens in text: leftmost first, of those the longest.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace nibble::text {

// A trie over the spellings. A scan costs at most (length of the text) x (length of the longest
// spelling) steps, and one step for a byte that begins no spelling.
class AddedTokenMatcher {
 public:
  struct Match {
    std::size_t begin = 0, length = 0;
    std::int32_t id = -1;  // -1: no match in the rest of the text
  };

  // False if the spelling is empty or known already.
  bool add(std::string_view spelling, std::int32_t id);
  Match find(std::string_view text, std::size_t from) const;
  std::int32_t find_exact(std::string_view spelling) const;  // -1: none
  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    std::int32_t first_child = -1, next_sibling = -1;
    std::int32_t id = -1;
    char byte = 0;
  };
  std::int32_t child(std::int32_t node, char byte) const;
  Match longest_at(std::string_view text, std::size_t begin) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> is_first_byte_{};
};

}  // namespace nibble::text
