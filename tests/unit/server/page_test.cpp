#include "server/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "server/page_files.h"

namespace nibble::server {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const std::filesystem::path kFolder =
    std::filesystem::path(NIBBLE_SOURCE_DIR) / "src" / "server" / "page";

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Keeps the reply; nothing else may be called.
class KeptReply final : public Exchange {
 public:
  void post(std::function<void()> /*work*/) override { FAIL(); }
  void reply(HttpReply reply) override { kept = std::move(reply); }
  void begin_stream(HttpReply /*head*/) override { FAIL(); }
  void send(std::string_view /*chunk*/) override { FAIL(); }
  void end_stream() override { FAIL(); }
  void when_gone(std::function<void()> /*action*/) override { FAIL(); }
  void when_late(std::chrono::milliseconds /*after*/, std::function<void()> /*action*/) override {
    FAIL();
  }

  std::optional<HttpReply> kept;
};

std::optional<HttpReply> ask(const std::string& path, std::vector<Header> headers = {},
                             const std::string& method = "GET") {
  HttpRequest request;
  request.method = method;
  request.path = path;
  request.headers = std::move(headers);
  KeptReply exchange;
  const bool is_answered = answer_page(request, exchange);
  EXPECT_EQ(is_answered, exchange.kept.has_value());
  return exchange.kept;
}

std::string header_of(const HttpReply& reply, std::string_view name) {
  std::string found;
  for (const Header& header : reply.headers) {
    if (header.name == name) {
      EXPECT_EQ(found, "") << name << " twice";
      found = header.value;
    }
  }
  return found;
}

TEST(Page, HoldsEveryFileAsItIs) {
  std::size_t num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename().string();
    if (name == "headers.txt") {
      continue;
    }
    ++num_files;
    const auto reply = ask(name == "index.html" ? "/" : "/page/" + name);
    ASSERT_TRUE(reply.has_value()) << name << " is not in src/server/CMakeLists.txt";
    EXPECT_EQ(reply->status, 200);
    EXPECT_EQ(reply->body, bytes_of(entry.path())) << name;
  }
  EXPECT_EQ(num_files, page_files().size());
}

TEST(Page, TellsTheTypeThatBrowsersWant) {
  EXPECT_EQ(ask("/")->content_type, "text/html; charset=utf-8");
  EXPECT_EQ(ask("/page/app.css")->content_type, "text/css; charset=utf-8");
  EXPECT_EQ(ask("/page/app.mjs")->content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(ask("/page/icon.svg")->content_type, "image/svg+xml; charset=utf-8");
}

TEST(Page, SendsTheHeadersOfTheList) {
  const HttpReply reply = ask("/").value();
  std::ifstream list(kFolder / "headers.txt");
  std::size_t num_headers = 0;
  for (std::string line; std::getline(list, line); ++num_headers) {
    const std::size_t colon = line.find(": ");
    EXPECT_EQ(header_of(reply, line.substr(0, colon)), line.substr(colon + 2));
  }
  EXPECT_EQ(num_headers, page_headers().size());
  EXPECT_THAT(header_of(reply, "Content-Security-Policy"), StartsWith("default-src 'none';"));
  EXPECT_EQ(header_of(reply, "X-Content-Type-Options"), "nosniff");
}

TEST(Page, IsNotSentAgainToThoseWhoHaveIt) {
  const std::string etag = header_of(ask("/page/app.css").value(), "etag");
  EXPECT_THAT(etag, StartsWith("W/\""));
  for (const std::string& known : {etag, "\"other\", " + etag}) {
    const HttpReply reply = ask("/page/app.css", {{"if-none-match", known}}).value();
    EXPECT_EQ(reply.status, 304);
    EXPECT_EQ(reply.body, "");
    EXPECT_EQ(header_of(reply, "etag"), etag);
  }
  EXPECT_EQ(ask("/page/app.mjs", {{"if-none-match", etag}})->status, 200);
}

TEST(Page, IsCompressedForThoseWhoTakeIt) {
  const HttpReply plain = ask("/page/app.css").value();
  const HttpReply packed = ask("/page/app.css", {{"accept-encoding", "gzip, br"}}).value();
  EXPECT_EQ(header_of(plain, "content-encoding"), "");
  EXPECT_EQ(header_of(packed, "content-encoding"), "gzip");
  EXPECT_EQ(header_of(plain, "vary"), "accept-encoding");
  EXPECT_EQ(header_of(packed, "vary"), "accept-encoding");
  EXPECT_LT(packed.body.size(), plain.body.size() / 2);
  // Magic, deflate, no flags, no time; at the end the size of the text, little endian.
  EXPECT_EQ(packed.body.substr(0, 8), std::string("\x1f\x8b\x08\0\0\0\0\0", 8));
  std::size_t num_bytes = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    num_bytes |= std::size_t{static_cast<unsigned char>(packed.body[packed.body.size() - 4 + i])}
                 << (8 * i);
  }
  EXPECT_EQ(num_bytes, plain.body.size());
}

TEST(Page, LeavesEverythingElseAlone) {
  EXPECT_TRUE(ask("/", {}, "HEAD").has_value());
  EXPECT_FALSE(ask("/", {}, "POST").has_value());
  for (const char* path : {"", "/index.html", "/page", "/page/", "/page/headers.txt",
                           "/page/../page/app.css", "/v1/models", "/page/app.css/"}) {
    EXPECT_FALSE(ask(path).has_value()) << path;
  }
}

}  // namespace
}  // namespace nibble::server
