#include "cli/chat.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "cli/answer.h"
#include "cli/effort.h"
#include "cli/interrupt.h"
#include "cli/parse.h"

namespace nibble::cli {
namespace {

constexpr const char* kHelp =
    "  /reset          forget the conversation\n"
    "  /system TEXT    set the instructions, and forget the conversation (no TEXT: none)\n"
    "  /effort LEVEL   how much to reason: low, medium or high\n"
    "  /save FILE      write the conversation; JSON if FILE ends in .json, else Markdown\n"
    "  /help           this list\n"
    "  /exit           leave; so does Ctrl-D\n"
    "  Ctrl-C stops an answer. A line that ends in \\ goes on in the next.\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos
             ? std::string_view()
             : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

const char* role_name(ChatRole role) {
  switch (role) {
    case ChatRole::kSystem: return "system";
    case ChatRole::kDeveloper: return "developer";
    case ChatRole::kUser: return "user";
    case ChatRole::kAssistant: return "assistant";
    case ChatRole::kTool: return "tool";
  }
  return "user";
}

std::string as_json(const std::vector<ChatMessage>& messages, const std::string& model) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages) {
    nlohmann::ordered_json entry = {{"role", role_name(message.role)},
                                    {"content", message.content}};
    if (!message.reasoning.empty()) {
      entry["reasoning"] = message.reasoning;
    }
    list.push_back(std::move(entry));
  }
  const nlohmann::ordered_json root = {{"model", model}, {"messages", list}};
  return root.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string as_markdown(const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatMessage& message : messages) {
    text += fmt::format("{}**{}**\n\n{}\n", text.empty() ? "" : "\n", role_name(message.role),
                        message.content);
  }
  return text;
}

bool write_file(const std::string& path, const std::string& text) {
  errno = 0;
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    return false;
  }
  const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return (std::fclose(file) == 0) && is_written;
}

class Chat {
 public:
  Chat(Host& host, Session& session, const ChatOptions& options)
      : host_(host),
        session_(session),
        request_(options.request),
        prompt_(std::get<ChatPrompt>(request_.prompt)),
        show_reasoning_(options.show_reasoning) {}

  Outcome talk(LineReader& reader) {
    say(fmt::format("{}\n/help lists commands, Ctrl-D leaves.\n\n", session_.info().model));
    std::string text;
    while (host_.out.is_open()) {
      std::string line;
      switch (reader.read(text.empty() ? "> " : ". ", line)) {
        case LineReader::Event::kEnd: return done();
        case LineReader::Event::kInterrupted: text.clear(); continue;
        case LineReader::Event::kLine: break;
      }
      if (line.ends_with("\\")) {
        text += line.substr(0, line.size() - 1) + "\n";
        continue;
      }
      text += line;
      const std::string whole = std::exchange(text, {});
      if (!handle(std::string(trimmed(whole)))) {
        return done();
      }
    }
    return done();
  }

 private:
  void say(const std::string& text) {
    host_.out.write(text);
    host_.out.flush();
  }

  // False: leave.
  bool handle(const std::string& line) {
    if (line.empty()) {
      return true;
    }
    if (line.front() != '/') {
      answer(line);
      return true;
    }
    const std::size_t space = std::min(line.find(' '), line.size());
    return command(line.substr(0, space), std::string(trimmed(line.substr(space))));
  }

  bool command(const std::string& name, const std::string& argument) {
    if (name == "/exit" || name == "/quit" || name == "/bye") {
      return false;
    }
    if (name == "/help" || name == "/?") {
      say(kHelp);
    } else if (name == "/reset" || name == "/clear") {
      forget();
      say("The conversation is forgotten.\n");
    } else if (name == "/system") {
      set_system(argument);
    } else if (name == "/effort") {
      set_effort(argument);
    } else if (name == "/save") {
      save(argument);
    } else {
      const std::string near =
          nearest(name, {"/help", "/reset", "/system", "/effort", "/save", "/exit"});
      say(fmt::format("Unknown command {}; {}\n", name,
                      near.empty() ? "/help lists them." : "did you mean " + near + "?"));
    }
    return true;
  }

  bool has_system() const {
    return !prompt_.messages.empty() && prompt_.messages.front().role == ChatRole::kSystem;
  }

  void forget() { prompt_.messages.resize(has_system() ? 1 : 0); }

  void set_system(const std::string& text) {
    prompt_.messages.clear();
    if (!text.empty()) {
      ChatMessage message;
      message.role = ChatRole::kSystem;
      message.content = text;
      prompt_.messages.push_back(std::move(message));
    }
    say(text.empty() ? "No instructions; the conversation starts anew.\n"
                     : "The conversation starts anew with these instructions.\n");
  }

  void set_effort(const std::string& text) {
    if (const auto effort = effort_of(text)) {
      prompt_.effort = *effort;
      say(fmt::format("Reasoning effort: {}.\n", text));
    } else {
      say(fmt::format("/effort wants low, medium or high; now it is {}.\n",
                      effort_name(prompt_.effort)));
    }
  }

  void save(const std::string& path) {
    if (path.empty()) {
      say("/save wants the name of a file.\n");
      return;
    }
    const std::string text = path.ends_with(".json")
                                 ? as_json(prompt_.messages, session_.info().model)
                                 : as_markdown(prompt_.messages);
    if (write_file(path, text)) {
      say(fmt::format("Saved {} messages to {}.\n", prompt_.messages.size(), path));
    } else {
      say(fmt::format("{}: {}\n", path, std::strerror(errno)));
    }
  }

  void answer(const std::string& text) {
    ChatMessage question;
    question.role = ChatRole::kUser;
    question.content = text;
    prompt_.messages.push_back(std::move(question));
    Result<Response> response = generate();
    if (!response) {
      prompt_.messages.pop_back();
      const bool may_be_full = response.error().code() == Code::kInvalidArgument ||
                               response.error().code() == Code::kExhausted;
      say(fmt::format("{}{}\n\n", response.error().message(),
                      may_be_full ? " (/reset forgets the conversation)" : ""));
      return;
    }
    const bool is_stopped = response->finish_reason == FinishReason::kCancelled;
    say(is_stopped                                         ? "(stopped)\n\n"
        : response->finish_reason == FinishReason::kLength ? "(cut off at the token limit)\n\n"
                                                           : "\n");
    if (is_stopped && response->content.empty()) {
      prompt_.messages.pop_back();  // as if it had not been asked
      return;
    }
    ChatMessage reply;
    reply.role = ChatRole::kAssistant;
    reply.content = std::move(response->content);
    reply.reasoning = std::move(response->reasoning);
    reply.tool_calls = std::move(response->tool_calls);
    prompt_.messages.push_back(std::move(reply));
  }

  Result<Response> generate() {
    AnswerPrinter printer(host_.out, AnswerPrinter::Form::kText, show_reasoning_);
    const InterruptGuard guard;
    clear_interrupt();
    Result<Response> response = session_.generate(
        request_, [&](const Delta& delta) { return printer.print(delta) && !is_interrupted(); });
    clear_interrupt();
    printer.finish(response ? *response : Response());
    return response;
  }

  Host& host_;
  Session& session_;
  Request request_;
  ChatPrompt& prompt_;  // of request_
  bool show_reasoning_;
};

}  // namespace

Outcome run_chat(Host& host, Session& session, const ChatOptions& options,
                 const std::string& history_file) {
  Chat chat(host, session, options);
  const std::unique_ptr<LineReader> reader = host.make_line_reader(history_file);
  return chat.talk(*reader);
}

}  // namespace nibble::cli
