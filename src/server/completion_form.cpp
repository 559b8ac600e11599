#include "server/completion_form.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "nibble/choices.h"
#include "server/usage.h"

namespace nibble::server {
namespace {

std::size_t num_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  }));
}

const char* finish_of(const Response& response) {
  return response.finish_reason == FinishReason::kLength ? "length" : "stop";
}

// OpenAI's older form of log-probabilities: four lists.
class LogprobLists {
 public:
  // `offset`: characters before the first token.
  LogprobLists(const ModelHost& host, std::size_t offset) : host_(host), offset_(offset) {}

  void add(const std::vector<TokenLogprob>& tokens) {
    for (const TokenLogprob& token : tokens) {
      if (token.part == TokenPart::kContent) {
        add(token);
      }
    }
  }
  bool empty() const { return lists_["tokens"].empty(); }
  std::size_t offset() const { return offset_; }
  Json take() { return std::move(lists_); }

 private:
  void add(const TokenLogprob& token) {
    const std::string text = host_.token_bytes(token.id);
    Json top = Json::object();
    for (const auto& [id, logprob] : token.top) {
      top[host_.token_bytes(id)] = finite_logprob(logprob);
    }
    const bool is_given = std::isnan(token.logprob);  // the first token of a prompt
    lists_["tokens"].push_back(text);
    lists_["token_logprobs"].push_back(is_given ? Json() : Json(finite_logprob(token.logprob)));
    lists_["top_logprobs"].push_back(is_given ? Json() : std::move(top));
    lists_["text_offset"].push_back(offset_);
    offset_ += num_characters(text);
  }

  const ModelHost& host_;
  std::size_t offset_ = 0;
  Json lists_ = {{"tokens", Json::array()},
                 {"token_logprobs", Json::array()},
                 {"top_logprobs", Json::array()},
                 {"text_offset", Json::array()}};
};

class CompletionForm final : public AnswerForm {
 public:
  CompletionForm(const ModelHost& host, CompletionOptions options)
      : host_(host),
        options_(std::move(options)),
        frame_(std::move(options_.frame)),
        held_(options_.echoes.size() * options_.num_generated) {
    for (std::size_t choice = 0; choice < held_.size(); ++choice) {
      offsets_.push_back(num_characters(echo_of(choice)));
    }
  }

  void begin(std::string& out) override {
    for (std::size_t choice = 0; choice < held_.size(); ++choice) {
      if (!echo_of(choice).empty()) {
        append_chunk(choice, {echo_of(choice), Json(), Json()}, out);
      }
    }
  }

  void delta(std::size_t choice, const Delta& delta, std::string& out) override {
    if (delta.kind == Delta::Kind::kContent) {
      held_[choice] += delta.text;
      if (!options_.wants_logprobs) {
        flush(choice, out);
      }
    } else if (delta.kind == Delta::Kind::kTokens && options_.wants_logprobs) {
      LogprobLists lists(host_, offsets_[choice]);
      lists.add(delta.tokens);
      offsets_[choice] = lists.offset();
      if (!lists.empty()) {
        append_chunk(choice, {std::exchange(held_[choice], {}), lists.take(), Json()}, out);
      }
    }
  }

  void end(std::size_t choice, const Response& response, std::string& out) override {
    flush(choice, out);
    append_chunk(choice, {"", Json(), finish_of(response)}, out);
  }

  void finish(const std::vector<Response>& responses, std::string& out) override {
    frame_.append_end(usage_of(responses), responses, out);
  }

  void fail(const ApiError& error, std::string& out) override {
    ReplyFrame::append_failure(error, out);
  }

  Json whole(const std::vector<Response>& responses) override {
    Json choices = Json::array();
    std::vector<Response> shown;
    for (std::size_t prompt = 0; prompt < options_.echoes.size(); ++prompt) {
      const auto answers =
          std::span(responses).subspan(prompt * options_.num_generated, options_.num_generated);
      for (const std::size_t index : shown_of(answers)) {
        Json choice = choice_json(prompt, answers[index], answers.front().prompt_logprobs);
        choice["index"] = choices.size();
        choices.push_back(std::move(choice));
        shown.push_back(answers[index]);
      }
    }
    return frame_.whole(std::move(choices), usage_of(responses), shown);
  }

 private:
  struct Piece {
    std::string text;
    Json logprobs;
    Json finish;
  };

  const std::string& echo_of(std::size_t choice) const {
    return options_.echoes[choice / options_.num_generated];
  }

  std::vector<std::size_t> shown_of(std::span<const Response> answers) const {
    if (options_.num_shown < answers.size()) {
      return best_choices(answers, options_.num_shown);
    }
    std::vector<std::size_t> all(answers.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
  }

  Json choice_json(std::size_t prompt, const Response& answer,
                   const std::vector<TokenLogprob>& prompt_tokens) const {
    const std::string& echo = options_.echoes[prompt];
    Json logprobs;
    if (options_.wants_logprobs) {
      LogprobLists lists(host_, options_.echoes_logprobs ? 0 : num_characters(echo));
      lists.add(prompt_tokens);
      lists.add(answer.logprobs);
      logprobs = lists.take();
    }
    return {{"index", 0},
            {"text", echo + answer.content},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", finish_of(answer)}};
  }

  // Each prompt counts once, however many answers it has; answers count whether shown or not.
  Usage usage_of(const std::vector<Response>& responses) const {
    Usage sum;
    for (std::size_t first = 0; first < responses.size(); first += options_.num_generated) {
      const auto begin = responses.begin() + static_cast<std::ptrdiff_t>(first);
      const Usage one =
          total_usage({begin, begin + static_cast<std::ptrdiff_t>(options_.num_generated)});
      sum.prompt_tokens += one.prompt_tokens;
      sum.cached_tokens += one.cached_tokens;
      sum.completion_tokens += one.completion_tokens;
    }
    return sum;
  }

  void append_chunk(std::size_t choice, const Piece& piece, std::string& out) const {
    frame_.append_chunk({{"index", choice},
                         {"text", piece.text},
                         {"logprobs", piece.logprobs},
                         {"finish_reason", piece.finish}},
                        out);
  }

  void flush(std::size_t choice, std::string& out) {
    if (!held_[choice].empty()) {
      append_chunk(choice, {std::exchange(held_[choice], {}), Json(), Json()}, out);
    }
  }

  const ModelHost& host_;
  CompletionOptions options_;
  ReplyFrame frame_;
  std::vector<std::string> held_;  // of each choice: text that waits for its log-probabilities
  std::vector<std::size_t> offsets_;
};

}  // namespace

std::unique_ptr<AnswerForm> make_completion_form(const ModelHost& host, CompletionOptions options) {
  return std::make_unique<CompletionForm>(host, std::move(options));
}

}  // namespace nibble::server
