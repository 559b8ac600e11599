// Input that begins with `{`: any text as a tokenizer.json. Other input: any bytes as text, which
// must come back from its ids.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "support/tiny_tokenizer.h"
#include "text/tokenizer.h"

namespace nibble::text {
namespace {

void require(bool claim, const char* message) {
  if (!claim) {
    std::fprintf(stderr, "%s\n", message);
    std::abort();
  }
}

void require_round_trip(const Tokenizer& tokenizer, std::string_view text) {
  for (const SpecialTokens mode : {SpecialTokens::kAsText, SpecialTokens::kRecognise}) {
    const std::vector<std::int32_t> ids = tokenizer.encode(text, mode);
    require(tokenizer.decode(ids) == text, "the ids do not give the text back");
    for (const std::int32_t id : ids) {
      require(id >= 0 && id < tokenizer.vocab_size(), "an id outside the vocabulary");
    }
  }
}

const Tokenizer& tiny() {
  static const Result<Tokenizer> kMade = Tokenizer::from_json(
      "tiny", TinyTokenizer{.merges = {{"a", "b"}, {"\xC4\xA0", "a"}, {"ab", "ab"}, {"1", "2"}},
                            .added_tokens = R"([{"id": 400, "content": "<|a|>", "special": true},
                                                {"id": 401, "content": "<|a", "normalized": true}])"}
                  .json());
  return kMade.value();
}

void run(std::string_view input) {
  if (!input.starts_with("{")) {
    require_round_trip(tiny(), input);
    return;
  }
  const Result<Tokenizer> made = Tokenizer::from_json("fuzz", input);
  if (made) {
    require_round_trip(*made, input);
  } else {
    require(made.error().message().find('\n') == std::string::npos, "a message of two lines");
  }
}

}  // namespace
}  // namespace nibble::text

// NOLINTNEXTLINE(readability-identifier-naming): the fuzzer calls it by this name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  nibble::text::run({reinterpret_cast<const char*>(data), num_bytes});
  return 0;
}
