// Runs the requests behind one HTTP request and gives their answers to the form of its API.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/handlers.h"
#include "server/json.h"

namespace nibble::server {

// How one API writes answers. `choice` counts the answers of the job. What is appended to `out` is
// sent as server-sent events.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;

  // Stream.
  virtual void begin(std::string& out) = 0;
  virtual void delta(std::size_t choice, const Delta& delta, std::string& out) = 0;
  virtual void end(std::size_t choice, const Response& response, std::string& out) = 0;
  virtual void finish(const std::vector<Response>& responses, std::string& out) = 0;
  virtual void fail(const ApiError& error, std::string& out) = 0;

  // One reply.
  virtual Json whole(const std::vector<Response>& responses) = 0;
  virtual HttpReply refusal(const ApiError& error) { return error_reply(error); }
};

// Answers to one prompt.
struct Question {
  Request request;
  std::size_t num_choices = 1;
};

struct GenerationJob {
  std::vector<Question> questions;
  std::unique_ptr<AnswerForm> form;
  bool is_stream = false;
  bool needs_deltas = false;  // also when nothing is streamed: the form builds on them
  // Called before anything is submitted, if set, with a function that ends the job early, from any
  // thread: the answer is what there is by then, its finish reason kCancelled.
  std::function<void(std::function<void()> cancel)> when_made;
  bool checks_tool_names = false;  // calls of tools that the prompt does not offer become text
};

// Takes the job; the reply comes later, from the exchange's executor.
void run_job(const Call& call, GenerationJob job);

// One event of a stream.
void append_event(const Json& data, std::string& out);
void append_named_event(std::string_view name, const Json& data, std::string& out);

}  // namespace nibble::server
