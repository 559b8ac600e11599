// Token streams of the demo's vocabulary, and replies to them given some tokens at a time.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unit/server/client_view.h"
#include "unit/server/scripted_api.h"

namespace nibble::server {

using Ids = std::vector<std::int32_t>;

inline Ids ids_of(const std::string& script) {
  return demo_tokenizer().encode(script, text::SpecialTokens::kRecognise);
}

// One token for each byte.
inline Ids ids_of_bytes(std::string_view bytes) {
  static const std::array<std::int32_t, 256> kTokens = [] {
    std::array<std::int32_t, 256> out{};
    for (std::int32_t id = demo_tokenizer().vocab_size() - 1; id >= 0; --id) {
      const std::string_view spelling = demo_tokenizer().token_bytes(id);
      if (spelling.size() == 1 && !demo_tokenizer().is_special(id)) {
        out[static_cast<unsigned char>(spelling.front())] = id;
      }
    }
    return out;
  }();
  Ids out;
  for (const char byte : bytes) {
    out.push_back(kTokens[static_cast<unsigned char>(byte)]);
  }
  return out;
}

inline Ids operator+(Ids left, const Ids& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// As the fuzzer of the parser reads its inputs: byte 0x80 + k is control token k, 0x90..0x9F begin
// again, every other byte is a token of that byte.
inline Ids ids_of_fuzz_input(std::string_view input) {
  const text::HarmonyTokens tokens = *text::HarmonyTokens::find(demo_tokenizer());
  const std::int32_t control[] = {tokens.start,     tokens.end,     tokens.message, tokens.channel,
                                  tokens.constrain, tokens.return_, tokens.call,    tokens.start};
  Ids out;
  for (const char c : input) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x90 && byte < 0xA0) {
      out.clear();
    } else if (byte >= 0x80 && byte < 0x90) {
      out.push_back(control[(byte - 0x80) % 8]);
    } else {
      out = std::move(out) + ids_of_bytes({&c, 1});
    }
  }
  return out;
}

// Name -> contents of every input that is kept for the parser's fuzzer.
inline std::map<std::string, std::string> fuzz_corpus() {
  std::map<std::string, std::string> out;
  for (const auto& entry :
       std::filesystem::directory_iterator(NIBBLE_SOURCE_DIR "/tests/fuzz/corpus/harmony_parser")) {
    std::ifstream file(entry.path(), std::ios::binary);
    out[entry.path().filename()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return out;
}

inline constexpr std::size_t kAllAtOnce = std::numeric_limits<std::size_t>::max();
inline constexpr std::size_t kTokensPerStep[] = {1, 2, 10, kAllAtOnce};

// The reply when the engine gives `per_step` tokens, the server hands on what there is, and so on.
inline Reply reply_in_steps(Api& api, const std::string& path, const TestJson& body, const Ids& ids,
                            std::size_t per_step) {
  Reply reply;
  const auto exchange = std::make_shared<RecordingExchange>(reply);
  api.host->waits = true;
  make_api(api.context)({.method = "POST", .path = path, .body = body.dump()}, exchange);
  EXPECT_EQ(api.host->waiting.size(), 1U) << reply.body;
  if (!api.host->waiting.empty()) {
    ScriptedAnswer answer(api.host->requests.back(), std::move(api.host->waiting.back()), ids);
    exchange->run();
    while (answer.step(per_step)) {
      exchange->run();
    }
    answer.end();
    exchange->run();
    api.host->waiting.clear();
  }
  return reply;
}

}  // namespace nibble::server
