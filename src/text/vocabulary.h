// The tokens of a byte-level vocabulary: bytes by id and id by bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nibble::text {

// Immutable once filled; ids are below kMaxIds.
class Vocabulary {
 public:
  static constexpr std::int32_t kMaxIds = 1 << 22;

  // Room for `ids` ids (largest + 1) and `tokens` tokens that find() knows.
  void reserve(std::int32_t ids, std::size_t tokens);
  // Gives `id` its bytes, which must outlive the vocabulary. False if the id has some already.
  bool set(std::int32_t id, std::string_view bytes);
  // Makes find() know the bytes of `id`. False if it knows the same bytes under another id.
  bool index(std::int32_t id);

  std::int32_t find(std::string_view bytes) const;  // -1: no such token
  bool contains(std::int32_t id) const {
    return id >= 0 && id < size() && tokens_[static_cast<std::size_t>(id)].data() != nullptr;
  }
  std::string_view bytes(std::int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }
  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }

 private:
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t id = -1;
  };
  std::vector<std::string_view> tokens_;  // by id; null data: no such token
  std::vector<Slot> slots_;               // open addressing, power of two, at most half full
};

}  // namespace nibble::text
