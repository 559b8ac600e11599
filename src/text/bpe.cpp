#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace nibble::text {

namespace {

constexpr std::uint32_t kEnd = 0xFFFFFFFFU;
// Positions are 32 bits wide, so a longer piece is cut here.
constexpr std::size_t kMaxPiece = std::size_t{1} << 30U;

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32U) |
         static_cast<std::uint32_t>(right);
}

}  // namespace

void MergeTable::reserve(std::size_t merges) { slots_.assign(std::bit_ceil(2 * merges + 1), {}); }

std::size_t MergeTable::slot_of(std::uint64_t key) const {
  const std::size_t mask = slots_.size() - 1;
  std::uint64_t mixed = key * 0x9E3779B97F4A7C15U;
  mixed ^= mixed >> 32U;
  std::size_t at = mixed & mask;
  while (slots_[at].key != key && slots_[at].key != kFree) {
    at = (at + 1) & mask;
  }
  return at;
}

void MergeTable::add(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key = key_of(left, right);
  slots_[slot_of(key)] = {key, merge};
}

Merge MergeTable::find(std::int32_t left, std::int32_t right) const {
  return slots_[slot_of(key_of(left, right))].merge;  // a free slot holds no rank
}

Bpe::Bpe(const Vocabulary& vocabulary, MergeTable merges, bool ignore_merges)
    : vocabulary_(&vocabulary), merges_(std::move(merges)), ignore_merges_(ignore_merges) {
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    byte_ids_[static_cast<std::size_t>(byte)] = vocabulary.find({&text, 1});
    NIBBLE_CHECK(byte_ids_[static_cast<std::size_t>(byte)] >= 0, byte);
  }
}

void Bpe::encode_piece(std::string_view piece, BpeScratch& scratch,
                       std::vector<std::int32_t>& out) const {
  if (piece.size() == 1) {
    out.push_back(byte_id(static_cast<unsigned char>(piece[0])));
    return;
  }
  if (ignore_merges_) {
    if (const std::int32_t id = vocabulary_->find(piece); id >= 0) {
      out.push_back(id);
      return;
    }
  }
  for (; piece.size() > kMaxPiece; piece.remove_prefix(kMaxPiece)) {
    encode_long(piece.substr(0, kMaxPiece), scratch, out);
  }
  if (piece.size() <= kShortPiece) {
    encode_short(piece, scratch, out);
  } else {
    encode_long(piece, scratch, out);
  }
}

void Bpe::encode_short(std::string_view piece, BpeScratch& scratch,
                       std::vector<std::int32_t>& out) const {
  std::array<std::int32_t, kShortPiece> ids;
  std::array<Merge, kShortPiece + 1> merges;  // merges[i] joins ids[i] and ids[i + 1]
  std::size_t count = piece.size();
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = byte_id(static_cast<unsigned char>(piece[i]));
  }
  for (std::size_t i = 0; i + 1 < count; ++i) {
    merges[i] = merges_.find(ids[i], ids[i + 1]);
  }
  scratch.probes += count - 1;
  while (count > 1) {
    const auto last = merges.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    const auto best = std::min_element(
        merges.begin(), last, [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) {
      break;
    }
    const auto at = static_cast<std::size_t>(best - merges.begin());
    ids[at] = best->id;
    std::copy(ids.begin() + at + 2, ids.begin() + count, ids.begin() + at + 1);
    std::copy(merges.begin() + at + 1, last, merges.begin() + at);
    --count;
    if (at > 0) {
      merges[at - 1] = merges_.find(ids[at - 1], ids[at]);
    }
    if (at + 1 < count) {
      merges[at] = merges_.find(ids[at], ids[at + 1]);
    }
    scratch.probes += 2;
  }
  out.insert(out.end(), ids.begin(), ids.begin() + count);
}

void Bpe::link(std::string_view piece, BpeScratch& scratch) const {
  const auto count = static_cast<std::uint32_t>(piece.size());
  scratch.symbols.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    scratch.symbols[i] = {.id = byte_id(static_cast<unsigned char>(piece[i])),
                          .previous = i == 0 ? kEnd : i - 1,
                          .next = i + 1 == count ? kEnd : i + 1,
                          .merge = {}};
  }
  scratch.queue.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    rank_pair(i, scratch);
  }
  std::make_heap(scratch.queue.begin(), scratch.queue.end(), std::greater<>());
}

// Looks up the pair that begins at `at` and appends it to the queue, not yet as a heap.
void Bpe::rank_pair(std::uint32_t at, BpeScratch& scratch) const {
  BpeScratch::Symbol& symbol = scratch.symbols[at];
  symbol.merge = {};
  if (symbol.next == kEnd) {
    return;
  }
  ++scratch.probes;
  symbol.merge = merges_.find(symbol.id, scratch.symbols[symbol.next].id);
  if (symbol.merge.rank != kNoRank) {
    scratch.queue.push_back((std::uint64_t{symbol.merge.rank} << 32U) | at);
  }
}

void Bpe::encode_long(std::string_view piece, BpeScratch& scratch,
                      std::vector<std::int32_t>& out) const {
  link(piece, scratch);
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols;
  std::vector<std::uint64_t>& queue = scratch.queue;
  const auto push_pair = [&](std::uint32_t at) {
    const std::size_t before = queue.size();
    rank_pair(at, scratch);
    if (queue.size() > before) {
      std::push_heap(queue.begin(), queue.end(), std::greater<>());
    }
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const std::uint64_t top = queue.back();
    queue.pop_back();
    ++scratch.pops;
    const auto at = static_cast<std::uint32_t>(top);
    BpeScratch::Symbol& symbol = symbols[at];
    // Symbols only grow, so a pair that changed has another rank: the entry is outdated.
    if (symbol.id < 0 || symbol.merge.rank != static_cast<std::uint32_t>(top >> 32U)) {
      continue;
    }
    BpeScratch::Symbol& right = symbols[symbol.next];
    symbol.id = symbol.merge.id;
    right.id = -1;
    symbol.next = right.next;
    if (symbol.next != kEnd) {
      symbols[symbol.next].previous = at;
    }
    push_pair(at);
    if (symbol.previous != kEnd) {
      push_pair(symbol.previous);
    }
  }
  for (std::uint32_t at = 0; at != kEnd; at = symbols[at].next) {
    out.push_back(symbols[at].id);
  }
}

}  // namespace nibble::text
