// Any bytes as a token stream: the parser must keep the contract of its events and give the same
// result again. Byte 0x80 + k of the input is control token k; other bytes are byte tokens, so all
// spellings can be reached; 0x90..0x9F aborts the stream.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/harmony_script.h"

namespace nibble::text {
namespace {

constexpr std::uint8_t kFirstControlByte = 0x80;
constexpr std::uint8_t kFirstAbortByte = 0x90;
constexpr std::uint8_t kEndAbortByte = 0xA0;
constexpr std::int32_t kNumByteTokens = 256;

void require(bool claim, const std::string& message) {
  if (!claim) {
    std::fprintf(stderr, "%s\n", message.c_str());
    std::abort();
  }
}

std::vector<std::int32_t> ids_of(const std::uint8_t* data, std::size_t num_bytes) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < num_bytes; ++i) {
    const bool is_control = data[i] >= kFirstControlByte && data[i] < kFirstAbortByte;
    ids.push_back(is_control ? kNumByteTokens + (data[i] - kFirstControlByte) : data[i]);
  }
  return ids;
}

void run(const std::uint8_t* data, std::size_t num_bytes) {
  HarmonyScript script;
  HarmonyParser pooled = script.parser();
  std::vector<ParserEvent> dropped;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < num_bytes; ++i) {
    if (data[i] >= kFirstAbortByte && data[i] < kEndAbortByte) {
      begin = i + 1;
      pooled.reset();
    } else {
      pooled.push(ids_of(data + i, 1).front(), dropped);
    }
  }
  pooled.reset();
  const std::vector<std::int32_t> ids = ids_of(data + begin, num_bytes - begin);
  const std::string first = parse_all(pooled, ids);
  require(!first.starts_with("PROBLEM"), first);
  HarmonyParser fresh = script.parser();
  require(parse_all(fresh, ids) == first, "a pooled parser differs from a new one:\n" + first);
}

}  // namespace
}  // namespace nibble::text

// NOLINTNEXTLINE(readability-identifier-naming): the fuzzer calls it by this name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  nibble::text::run(data, num_bytes);
  return 0;
}
