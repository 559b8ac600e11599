// The answer to one streamed request of OpenAI's API, read as it comes.
#pragma once

#include <string>
#include <string_view>

#include "client/http.h"
#include "client/sse.h"
#include "client/statistics.h"

namespace nibble::client {

// Fills a RequestRecord.
//
// A chunk holds a token when its first choice has text, reasoning or tool calls, also when it has
// neither these nor an end (a token may be half a character); one that only names the role or the
// reason of the end does not. The time of the first such chunk is the first token's, the gaps
// between them are inter-token times, and the last chunk with any choice ends the latency.
//
// Successful: status 200, at least one token, and an end, which is `[DONE]` or a finish reason.
class StreamReader {
 public:
  // `record.input_len` is kept unless the server counts the prompt itself.
  explicit StreamReader(RequestRecord& record) : record_(record) {}

  void start(Clock::time_point now);
  void set_status(int status) { status_ = status; }
  void read(std::string_view bytes, Clock::time_point now);
  // The exchange has ended.
  void end(const Status& status);

  // Tokens as the server counts them; -1 if it does not.
  std::int32_t counted_output() const { return counted_output_; }
  std::int32_t num_token_chunks() const { return num_token_chunks_; }

 private:
  void take_event(std::string_view data);
  void fail(std::string message);
  double seconds_since_start() const;

  RequestRecord& record_;
  SseParser events_;
  std::string refusal_;  // the body of an answer that is no stream
  Clock::time_point start_;
  Clock::time_point now_;  // when the bytes came that are being read
  Clock::time_point last_token_;
  int status_ = 0;
  bool has_end_ = false;
  std::int32_t counted_output_ = -1;
  std::int32_t num_token_chunks_ = 0;
};

// The first id of an answer to /v1/models. kCorrupt: none.
Result<std::string> first_model(std::string_view json);
// The request without prompt and model is `extra`, a JSON object; empty: none. kInvalidArgument
// otherwise.
Status check_extra_body(const std::string& extra);

struct Prompt;

struct RequestShape {
  std::string model;
  bool is_chat = false;
  bool ignore_eos = false;
  std::string extra_body;  // a JSON object whose members win; checked
};
// The body of a streamed request.
std::string request_body(const RequestShape& shape, const Prompt& prompt);

}  // namespace nibble::client
