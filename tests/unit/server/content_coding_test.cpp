// gzip on both ways. What is compressed here is what Python's gzip made.
#include "server/content_coding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/server/scripted_api.h"

namespace nibble::server {
namespace {

using testing::HasSubstr;

// gzip.compress(b'{"prompt": "abc"}', 9, mtime=0), and the same with a file name and an extra
// field.
const std::string kBody = R"({"prompt": "abc"})";
const unsigned char kPython[] = {0x1F, 0x8B, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03,
                                 0xAB, 0x56, 0x2A, 0x28, 0xCA, 0xCF, 0x2D, 0x28, 0x51, 0xB2,
                                 0x52, 0x50, 0x4A, 0x4C, 0x4A, 0x56, 0xAA, 0x05, 0x00, 0x8E,
                                 0xEA, 0xD4, 0xD0, 0x11, 0x00, 0x00, 0x00};
const unsigned char kWithName[] = {
    0x1F, 0x8B, 0x08, 0x0C, 0x00, 0x00, 0x00, 0x00, 0x02, 0xFF, 0x06, 0x00, 0x61, 0x62,
    0x02, 0x00, 0x78, 0x79, 0x6E, 0x61, 0x6D, 0x65, 0x2E, 0x6A, 0x73, 0x6F, 0x6E, 0x00,
    0xAB, 0x56, 0x2A, 0x28, 0xCA, 0xCF, 0x2D, 0x28, 0x51, 0xB2, 0x52, 0x50, 0x4A, 0x4C,
    0x4A, 0x56, 0xAA, 0x05, 0x00, 0x8E, 0xEA, 0xD4, 0xD0, 0x11, 0x00, 0x00, 0x00};

template <std::size_t kSize>
std::string bytes_of(const unsigned char (&bytes)[kSize]) {
  return {bytes, bytes + kSize};
}

TEST(ContentCoding, ReadsWhatIsAccepted) {
  for (const char* yes : {"gzip", "br, gzip", "*", "gzip;q=0.5", "identity;q=0, gzip ; q=1",
                          "deflate,gzip", "gzip;q=0.001", "x-gzip", "*;q=0, gzip"}) {
    EXPECT_TRUE(accepts_gzip(yes)) << yes;
  }
  for (const char* no : {"", "br", "xgzip", "gzip;q=0", "gzip; q=0.000", "*;q=0", ",,;", "gzipp",
                         "*, gzip;q=0", "gzip;q=0, *"}) {
    EXPECT_FALSE(accepts_gzip(no)) << no;
  }
}

TEST(ContentCoding, ReadsWhatOthersCompressed) {
  EXPECT_EQ(gunzip(bytes_of(kPython), 1000).value(), kBody);
  EXPECT_EQ(gunzip(bytes_of(kWithName), 1000).value(), kBody);
}

TEST(ContentCoding, ComesBack) {
  std::string noise;
  for (std::uint32_t x = 1; noise.size() < 200'000; x = x * 1664525U + 1013904223U) {
    noise += static_cast<char>(x >> 24U);
  }
  for (const std::string& text :
       {std::string(), std::string("a"), std::string(300'000, 'a'), noise}) {
    const std::string packed = gzip(text);
    EXPECT_EQ(packed.substr(0, 2), "\x1F\x8B");
    EXPECT_EQ(gunzip(packed, text.size()).value(), text);
  }
  EXPECT_LT(gzip(std::string(300'000, 'a')).size(), 3000U);
}

TEST(ContentCoding, StopsAtTheLimit) {
  const std::string bomb = gzip(std::string(64 << 20, 'a'));
  ASSERT_LT(bomb.size(), 400'000U);
  EXPECT_EQ(gunzip(bomb, 1 << 20).error().code(), Code::kExhausted);
  EXPECT_EQ(gunzip(bomb, (64 << 20) - 1).error().code(), Code::kExhausted);
  EXPECT_TRUE(gunzip(bomb, 64 << 20).has_value());
  EXPECT_EQ(gunzip(bytes_of(kPython), 0).error().code(), Code::kExhausted);
}

TEST(ContentCoding, EveryFaultIsOne) {
  const std::string good = bytes_of(kPython);
  for (std::size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(gunzip(good.substr(0, size), 1000).error().code(), Code::kCorrupt) << size;
  }
  EXPECT_EQ(gunzip(good + "x", 1000).error().code(), Code::kCorrupt);
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    const Result<std::string> text =
        gunzip(bad, 1000);  // time, system and the text flag may differ
    EXPECT_TRUE(!text || *text == kBody) << at;
  }
}

TEST(Gzip, BodiesAreReadAndOtherCodingsRefused) {
  Api api;
  api.host->script = "one";
  const auto post = [&api](const std::string& coding, const std::string& body) {
    return api.call({.method = "POST",
                     .path = "/v1/completions",
                     .headers = {{"content-encoding", coding}},
                     .body = body});
  };
  for (const char* coding : {"gzip", "x-gzip"}) {
    ASSERT_EQ(post(coding, bytes_of(kPython)).status, 200);
    EXPECT_EQ(std::get<TextPrompt>(api.host->requests.back().prompt).text, "abc");
  }
  EXPECT_EQ(post("identity", kBody).status, 200);
  for (const char* coding : {"br", "deflate", "gzip, gzip", "GZIP2"}) {
    const Reply reply = post(coding, bytes_of(kPython));
    EXPECT_EQ(reply.status, 415) << coding;
    EXPECT_EQ(reply.headers.at("accept-encoding"), "gzip");
    EXPECT_THAT(reply.json()["error"]["message"].get<std::string>(), HasSubstr("want gzip"));
  }
  EXPECT_EQ(post("gzip", kBody).status, 400);
  EXPECT_EQ(post("gzip", bytes_of(kPython).substr(0, 20)).status, 400);
  api.context.options.body_bytes = 1000;
  const Reply bomb = post("gzip", gzip(std::string(1001, ' ')));
  EXPECT_EQ(bomb.status, 413);
  EXPECT_THAT(bomb.json()["error"]["message"].get<std::string>(), HasSubstr("1000 bytes"));
}

TEST(Gzip, LargeJsonIsCompressedForThoseWhoTakeIt) {
  Api api;
  api.host->script = "one";
  TestJson many = {{"prompt", TestJson::array()}};
  for (int i = 0; i < 40; ++i) {
    many["prompt"].push_back("a");
  }
  const auto post = [&api](const TestJson& body, const std::string& accepted) {
    return api.call({.method = "POST",
                     .path = "/v1/completions",
                     .headers = {{"accept-encoding", accepted}},
                     .body = body.dump()});
  };
  const Reply packed = post(many, "deflate, gzip");
  EXPECT_EQ(packed.headers.at("content-encoding"), "gzip");
  EXPECT_EQ(packed.headers.at("vary"), "accept-encoding");
  const TestJson json = TestJson::parse(gunzip(packed.body, 1 << 20).value());
  EXPECT_EQ(json["choices"].size(), 40U);
  const Reply plain = post(many, "identity");
  EXPECT_EQ(plain.json()["choices"], json["choices"]);
  EXPECT_EQ(plain.headers.count("content-encoding"), 0U);
  EXPECT_EQ(plain.headers.at("vary"), "accept-encoding");
  const Reply small = post({{"prompt", "a"}}, "gzip");
  EXPECT_EQ(small.headers.count("content-encoding"), 0U);
  EXPECT_EQ(small.json()["choices"].size(), 1U);
  many["stream"] = true;
  EXPECT_EQ(post(many, "gzip").headers.count("content-encoding"), 0U);
  many["stream"] = false;
  api.context.options.gzip_from_bytes = 0;
  EXPECT_EQ(post(many, "gzip").json()["choices"].size(), 40U);
}

}  // namespace
}  // namespace nibble::server
