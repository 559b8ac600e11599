// The API over a model that generates a given text, and an exchange that records what is sent.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api/answer.h"
#include "nibble/choices.h"
#include "server/api_context.h"
#include "server/router.h"
#include "text/harmony.h"

namespace nibble::server {

using TestJson = nlohmann::ordered_json;

// The demo's vocabulary: small, with the control tokens of the chat format.
inline const text::Tokenizer& demo_tokenizer() {
  static const text::Tokenizer kTokenizer =
      *text::Tokenizer::load(NIBBLE_SOURCE_DIR "/models/demo");
  return kTokenizer;
}

// Gives the tokens of an answer to the sink of its request, some at a time.
class ScriptedAnswer {
 public:
  ScriptedAnswer(const Request& request, RequestSink sink, std::vector<std::int32_t> ids)
      : sink_(std::move(sink)),
        ids_(std::move(ids)),
        answer_(format(request), request, sink_.on_delta) {
    top_logprobs_ = request.top_logprobs;
    seed_ = request.sampling.seed.value_or(99);
    is_cut_ = request.max_tokens >= 0 && static_cast<std::size_t>(request.max_tokens) < ids_.size();
    ids_.resize(is_cut_ ? static_cast<std::size_t>(request.max_tokens) : ids_.size());
    if (ids_.empty() && is_cut_) {  // as the engine says it
      (void)answer_.push({.token = -1, .finish = engine::Finish::kLength});
    }
  }
  ScriptedAnswer(const ScriptedAnswer&) = delete;
  ScriptedAnswer& operator=(const ScriptedAnswer&) = delete;

  float logprob = -0.5F;  // of every token

  // False when nothing is left to be given.
  bool step(std::size_t num_tokens) {
    for (; num_tokens > 0 && next_ < ids_.size(); --num_tokens) {
      const bool is_last = ++next_ == ids_.size();
      engine::TokenEvent event{.token = ids_[next_ - 1]};
      event.finish = !is_last  ? engine::Finish::kNone
                     : is_cut_ ? engine::Finish::kLength
                               : engine::Finish::kStop;
      event.logprob.logprob = logprob;
      if (top_logprobs_ > 0) {
        event.logprob.top = {{event.token, logprob}, {0, -std::numeric_limits<float>::infinity()}};
      }
      if (sink_.on_token) {
        sink_.on_token(static_cast<std::int32_t>(next_), 1.0);
      }
      next_ = answer_.push(event) ? next_ : ids_.size();
    }
    return next_ < ids_.size();
  }
  void end(const Status& failure = {}) {
    if (!failure.ok()) {
      sink_.on_end(failure);
      return;
    }
    Response response = answer_.finish(false);
    response.usage.prompt_tokens = 7;
    response.usage.cached_tokens = 2;
    response.seed = seed_;
    response.kernels = {"gemm_a", "moe_b"};
    sink_.on_end(std::move(response));
  }

 private:
  static AnswerFormat format(const Request& request) {
    AnswerFormat out{.tokenizer = &demo_tokenizer(), .hidden_ids = request.stop_token_ids};
    if (std::holds_alternative<ChatPrompt>(request.prompt)) {
      out.harmony = *text::HarmonyTokens::find(demo_tokenizer());
    }
    out.wants_tokens = request.top_logprobs >= 0;
    return out;
  }

  RequestSink sink_;
  std::vector<std::int32_t> ids_;
  Answer answer_;
  std::size_t next_ = 0;
  std::int32_t top_logprobs_ = -1;
  std::uint64_t seed_ = 0;
  bool is_cut_ = false;
};

// Answers while `submit` runs, unless it is told to wait.
class ScriptedHost final : public ModelHost {
 public:
  ScriptedHost() {
    info_.max_model_len = 256;
    info_.vocab_size = demo_tokenizer().vocab_size();
  }

  std::string script;                    // what is generated, control tokens by their spellings
  std::vector<std::int32_t> script_ids;  // instead of the script, unless empty
  float logprob = -0.5F;                 // of every token
  Status refusal;                        // of the next submissions, unless ok
  Status failure;                        // at the end of the answer, unless ok
  bool waits = false;                    // submitted requests get no token
  ServiceStats state;
  std::vector<Request> requests;
  std::vector<RequestId> cancelled;

  const EngineInfo& info() const override { return info_; }
  ServiceStats stats() const override { return state; }
  void cancel(RequestId id) override { cancelled.push_back(id); }
  Result<std::vector<RequestId>> submit(const Request& request,
                                        std::vector<RequestSink> sinks) override {
    if (!refusal.ok()) {
      return refusal;
    }
    std::vector<RequestId> ids;
    std::vector<Request> choices = choices_of(request, sinks.size());
    for (std::size_t i = 0; i < choices.size(); ++i) {
      choices[i].prompt_logprobs = i == 0 ? request.prompt_logprobs : -1;
      ids.push_back(submit(choices[i], std::move(sinks[i])));
    }
    return ids;
  }
  RequestId submit(const Request& request, RequestSink sink) {
    requests.push_back(request);
    if (!waits) {
      ScriptedAnswer answer(request, std::move(sink), tokens());
      answer.logprob = logprob;
      (void)answer.step(std::numeric_limits<std::size_t>::max());
      answer.end(failure);
    } else {
      waiting.push_back(std::move(sink));
    }
    return static_cast<RequestId>(requests.size());
  }
  Result<std::vector<std::int32_t>> encode(const std::string& text, bool special) const override {
    return demo_tokenizer().encode(
        text, special ? text::SpecialTokens::kRecognise : text::SpecialTokens::kAsText);
  }
  Result<std::string> decode(const std::vector<std::int32_t>& ids) const override {
    return demo_tokenizer().decode(ids);
  }
  Result<std::vector<std::int32_t>> prompt_ids(const Request&) const override {
    return std::vector<std::int32_t>{1, 2, 3};
  }
  std::string token_bytes(std::int32_t id) const override {
    return std::string(demo_tokenizer().token_bytes(id));
  }

  std::vector<RequestSink> waiting;

 private:
  std::vector<std::int32_t> tokens() const {
    return script_ids.empty() ? demo_tokenizer().encode(script, text::SpecialTokens::kRecognise)
                              : script_ids;
  }

  EngineInfo info_;
};

struct Reply {
  int status = 0;
  std::map<std::string, std::string> headers;
  std::string body;
  std::vector<std::string> chunks;
  bool is_stream = false;
  bool has_ended = false;

  TestJson json() const { return TestJson::parse(body); }  // throws on what is no JSON
  std::string sent() const {
    std::string all;
    for (const std::string& chunk : chunks) {
      all += chunk;
    }
    return all;
  }
  // Data of the events; [DONE] must be the last one and is left out.
  std::vector<TestJson> events() const {
    std::vector<TestJson> out;
    const std::string all = sent();
    bool is_done = false;
    for (std::size_t at = all.find("data: "); at != std::string::npos;
         at = all.find("data: ", at + 1)) {
      const std::string data = all.substr(at + 6, all.find("\n\n", at) - at - 6);
      EXPECT_FALSE(is_done) << data;
      is_done = data == "[DONE]";
      if (!is_done) {
        out.push_back(TestJson::parse(data));
      }
    }
    return out;
  }
};

class RecordingExchange final : public Exchange {
 public:
  explicit RecordingExchange(Reply& reply) : reply_(reply) {}

  void post(std::function<void()> work) override { work_.push_back(std::move(work)); }
  void reply(HttpReply reply) override {
    EXPECT_FALSE(reply_.has_ended) << "a second reply";
    take(reply);
    reply_.body = std::move(reply.body);
    end();
  }
  void begin_stream(HttpReply head) override {
    take(head);
    reply_.is_stream = true;
  }
  void send(std::string_view chunk) override {
    EXPECT_TRUE(reply_.is_stream && !reply_.has_ended);
    reply_.chunks.emplace_back(chunk);
  }
  void end_stream() override { end(); }
  void when_gone(std::function<void()> action) override { gone = std::move(action); }
  void when_late(std::chrono::milliseconds after, std::function<void()> action) override {
    if (after.count() > 0) {
      late = std::move(action);
    }
  }
  // The client leaves.
  void leave() {
    std::exchange(gone, nullptr)();
    late = nullptr;
  }
  void run() {
    while (!work_.empty()) {
      const auto work = std::move(work_.front());
      work_.pop_front();
      work();
    }
  }

  std::function<void()> gone;
  std::function<void()> late;

 private:
  void take(const HttpReply& reply) {
    reply_.status = reply.status;
    reply_.headers["content-type"] = reply.content_type;
    for (const auto* headers : {&added_headers(), &reply.headers}) {
      for (const Header& header : *headers) {
        reply_.headers[header.name] = header.value;
      }
    }
  }

  // As the transport does, or a request and its exchange would hold each other for ever.
  void end() {
    reply_.has_ended = true;
    gone = nullptr;
    late = nullptr;
  }

  Reply& reply_;
  std::deque<std::function<void()>> work_;
};

// The whole API, loaded.
struct Api {
  explicit Api(ApiOptions options = {.model_names = {"demo", "alias"}})
      : log_file(std::tmpfile()),
        log(log_file, false, LogLevel::kDebug),
        context(std::move(options), log) {
    auto owned = std::make_unique<ScriptedHost>();
    host = owned.get();
    loaded.host = std::move(owned);
    loaded.metrics =
        std::make_unique<Metrics>("demo", EngineInfo{.activation = "int8", .max_model_len = 256});
    context.loaded = &loaded;
  }

  Reply call(HttpRequest request) {
    Reply reply;
    const auto exchange = std::make_shared<RecordingExchange>(reply);
    make_api(context)(request, exchange);
    exchange->run();
    return reply;
  }
  Reply get(const std::string& path, std::vector<Header> headers = {}) {
    return call({.method = "GET", .path = path, .headers = std::move(headers)});
  }
  Reply post(const std::string& path, const TestJson& body) {
    return call({.method = "POST", .path = path, .body = body.dump()});
  }

  // Everything that was logged.
  std::string logged() {
    std::string out;
    std::rewind(log_file);
    for (int c = std::fgetc(log_file); c != EOF; c = std::fgetc(log_file)) {
      out += static_cast<char>(c);
    }
    return out;
  }

  std::FILE* log_file;
  Log log;
  ApiContext context;
  Loaded loaded;
  ScriptedHost* host = nullptr;
};

}  // namespace nibble::server
