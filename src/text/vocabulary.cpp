#include "text/vocabulary.h"

#include <bit>
#include <cstring>

namespace nibble::text {

namespace {

std::uint32_t hash_of(std::string_view bytes) {
  constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15U;
  std::uint64_t state = bytes.size() * kMix;
  while (bytes.size() >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), 8);
    state = std::rotl((state ^ word) * kMix, 29);
    bytes.remove_prefix(8);
  }
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), bytes.size());
  state = (state ^ word) * kMix;
  return static_cast<std::uint32_t>(state >> 32U);
}

}  // namespace

void Vocabulary::reserve(std::int32_t ids, std::size_t tokens) {
  tokens_.assign(static_cast<std::size_t>(ids), {});
  slots_.assign(std::bit_ceil(2 * tokens + 1), {});
}

bool Vocabulary::set(std::int32_t id, std::string_view bytes) {
  std::string_view& token = tokens_[static_cast<std::size_t>(id)];
  if (token.data() != nullptr) {
    return false;
  }
  token = bytes;
  return true;
}

bool Vocabulary::index(std::int32_t id) {
  const std::string_view wanted = bytes(id);
  const std::uint32_t hash = hash_of(wanted);
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  for (; slots_[at].id >= 0; at = (at + 1) & mask) {
    if (slots_[at].hash == hash && bytes(slots_[at].id) == wanted) {
      return false;
    }
  }
  slots_[at] = {hash, id};
  return true;
}

std::int32_t Vocabulary::find(std::string_view bytes) const {
  const std::uint32_t hash = hash_of(bytes);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash & mask; slots_[at].id >= 0; at = (at + 1) & mask) {
    if (slots_[at].hash == hash && this->bytes(slots_[at].id) == bytes) {
      return slots_[at].id;
    }
  }
  return -1;
}

}  // namespace nibble::text
