#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace nibble::text {
namespace {

struct Rule {
  std::int32_t left, right, id;
};

// A vocabulary of the 256 bytes and random merges over a few letters.
class RandomBpe {
 public:
  explicit RandomBpe(unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::int32_t> usable = {'a', 'b', 'c'};
    spellings_.reserve(256 + kMerges);
    for (int byte = 0; byte < 256; ++byte) {
      spellings_.push_back(std::string(1, static_cast<char>(byte)));
    }
    while (rules_.size() < kMerges) {
      const std::int32_t left = usable[random() % usable.size()];
      const std::int32_t right = usable[random() % usable.size()];
      const std::string joined = spelling(left) + spelling(right);
      const auto known = std::find(spellings_.begin(), spellings_.end(), joined);
      if (known != spellings_.end()) {
        continue;
      }
      const auto id = static_cast<std::int32_t>(spellings_.size());
      spellings_.push_back(joined);
      usable.push_back(id);
      rules_.push_back({left, right, id});
    }
    std::shuffle(rules_.begin(), rules_.end(), random);
    vocabulary_.reserve(static_cast<std::int32_t>(spellings_.size()), spellings_.size());
    for (std::size_t i = 0; i < spellings_.size(); ++i) {
      EXPECT_TRUE(vocabulary_.set(static_cast<std::int32_t>(i), spellings_[i]));
      EXPECT_TRUE(vocabulary_.index(static_cast<std::int32_t>(i)));
    }
  }

  Bpe bpe() const {
    MergeTable table;
    table.reserve(rules_.size());
    for (std::size_t rank = 0; rank < rules_.size(); ++rank) {
      const Rule& rule = rules_[rank];
      table.add(rule.left, rule.right, {static_cast<std::uint32_t>(rank), rule.id});
    }
    return {vocabulary_, std::move(table), false};
  }

  // The definition, word for word: rank by rank would be wrong, as a merge may make a lower one.
  std::vector<std::int32_t> by_definition(const std::string& piece) const {
    std::vector<std::int32_t> ids;
    for (const char byte : piece) {
      ids.push_back(static_cast<unsigned char>(byte));
    }
    for (bool is_merged = true; is_merged;) {
      is_merged = false;
      for (std::size_t rank = 0; rank < rules_.size() && !is_merged; ++rank) {
        for (std::size_t i = 0; i + 1 < ids.size() && !is_merged; ++i) {
          if (ids[i] == rules_[rank].left && ids[i + 1] == rules_[rank].right) {
            ids[i] = rules_[rank].id;
            ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
            is_merged = true;
          }
        }
      }
    }
    return ids;
  }

 private:
  static constexpr std::size_t kMerges = 60;
  const std::string& spelling(std::int32_t id) const {
    return spellings_[static_cast<std::size_t>(id)];
  }

  std::vector<std::string> spellings_;
  std::vector<Rule> rules_;
  Vocabulary vocabulary_;
};

TEST(Bpe, MergesInTheOrderOfItsDefinitionAtEveryLength) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const RandomBpe random_bpe(seed);
    const Bpe bpe = random_bpe.bpe();
    std::mt19937 random(seed);
    BpeScratch scratch;
    for (std::size_t length = 1; length < 2 * Bpe::kShortPiece + 3; ++length) {
      for (unsigned letters = 1; letters <= 4; ++letters) {
        std::string piece;
        for (std::size_t i = 0; i < length; ++i) {
          piece += "abcd"[random() % letters];
        }
        std::vector<std::int32_t> ids;
        bpe.encode_piece(piece, scratch, ids);
        EXPECT_EQ(ids, random_bpe.by_definition(piece)) << seed << " " << piece;
      }
    }
  }
}

// The first ranking probes n - 1 pairs, each of at most n - 1 merges two more; nothing leaves the
// queue that a probe did not put there.
TEST(Bpe, ProbesAtMostThriceAByteInLongPieces) {
  const RandomBpe random_bpe(1);
  const Bpe bpe = random_bpe.bpe();
  for (const std::size_t length : {1000U, 10000U, 100000U, 1000000U}) {
    for (const std::string unit : {"a", "ab", "abc", "aab"}) {
      std::string piece;
      while (piece.size() < length) {
        piece += unit;
      }
      BpeScratch scratch;
      std::vector<std::int32_t> ids;
      bpe.encode_piece(piece, scratch, ids);
      EXPECT_LE(scratch.probes, 3 * piece.size()) << unit;
      EXPECT_LE(scratch.pops, scratch.probes) << unit;
    }
  }
}

TEST(MergeTable, KeepsTheLaterOfTwoMerges) {
  MergeTable table;
  EXPECT_EQ((table.reserve(0), table.find(1, 2).rank), kNoRank);
  table.reserve(2);
  table.add(1, 2, {5, 7});
  table.add(1, 2, {9, 7});
  EXPECT_EQ(table.find(1, 2).rank, 9U);
  EXPECT_EQ(table.find(2, 1).rank, kNoRank);
}

}  // namespace
}  // namespace nibble::text
