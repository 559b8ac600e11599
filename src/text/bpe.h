// Byte-pair merging of one piece of text.
//
// The pair of neighbours with the lowest rank is merged first, of equal ranks the leftmost, until
// no pair of neighbours has a rank. Work is O(n^2) for pieces of at most kShortPiece bytes and
// O(n log n) above, with O(n) probes of the merge table.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace nibble::text {

inline constexpr std::uint32_t kNoRank = 0xFFFFFFFFU;

struct Merge {
  std::uint32_t rank = kNoRank;
  std::int32_t id = -1;  // of the merged token
};

// (left id, right id) -> Merge.
class MergeTable {
 public:
  void reserve(std::size_t merges);
  // A pair that comes twice keeps the later merge, as in the reference.
  void add(std::int32_t left, std::int32_t right, Merge merge);
  Merge find(std::int32_t left, std::int32_t right) const;

 private:
  struct Slot {
    std::uint64_t key = kFree;
    Merge merge;
  };
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  std::size_t slot_of(std::uint64_t key) const;
  std::vector<Slot> slots_;  // open addressing, power of two, at most half full
};

// Memory that calls of encode_piece() share. One for each thread.
struct BpeScratch {
  struct Symbol {
    std::int32_t id = -1;  // -1: merged into the symbol before
    std::uint32_t previous = 0, next = 0;
    Merge merge;  // with the next symbol
  };
  std::vector<Symbol> symbols;
  std::vector<std::uint64_t> queue;
  std::uint64_t probes = 0;  // of the merge table, so far
  std::uint64_t pops = 0;    // from the queue, so far
};

class Bpe {
 public:
  static constexpr std::size_t kShortPiece = 32;

  // Every byte must be a token of `vocabulary`, which must outlive this. With `ignore_merges`, a
  // piece that is a token is not merged but looked up.
  Bpe(const Vocabulary& vocabulary, MergeTable merges, bool ignore_merges);

  // Appends the ids of `piece`.
  void encode_piece(std::string_view piece, BpeScratch& scratch,
                    std::vector<std::int32_t>& out) const;
  std::int32_t byte_id(unsigned char byte) const { return byte_ids_[byte]; }

 private:
  void encode_short(std::string_view piece, BpeScratch& scratch,
                    std::vector<std::int32_t>& out) const;
  void encode_long(std::string_view piece, BpeScratch& scratch,
                   std::vector<std::int32_t>& out) const;
  void link(std::string_view piece, BpeScratch& scratch) const;
  void rank_pair(std::uint32_t at, BpeScratch& scratch) const;

  const Vocabulary* vocabulary_;
  MergeTable merges_;
  std::array<std::int32_t, 256> byte_ids_{};
  bool ignore_merges_;
};

}  // namespace nibble::text
