// Answers as a person or a program reads them.
#pragma once

#include <string>

#include "cli/output.h"
#include "nibble/engine.h"
#include "nibble/request.h"

namespace nibble::cli {

// Prints an answer as it is generated, each piece at once.
class AnswerPrinter {
 public:
  enum class Form {
    kText,  // what the model says to the user
    kIds,   // token ids with commas; needs no tokenizer
  };

  // With `show_reasoning`, the analysis comes first: dimmed on a terminal, elsewhere between the
  // lines "[reasoning]" and "[answer]". Without, a terminal shows "thinking..." until the answer.
  AnswerPrinter(Output& out, Form form, bool show_reasoning)
      : out_(out), form_(form), show_reasoning_(show_reasoning) {}

  // False when nobody reads any more.
  bool print(const Delta& delta);
  // Ends the last line. Ids that came without a delta are printed here.
  void finish(const Response& response);

 private:
  enum class Section { kNone, kThinking, kReasoning, kContent, kToolCall };

  void enter(Section section);
  void write(const std::string& text);
  void print_id(std::int32_t id);

  Output& out_;
  Form form_;
  bool show_reasoning_;
  Section section_ = Section::kNone;
  bool is_line_open_ = false;
  std::size_t ids_printed_ = 0;
};

// The whole response as one JSON object on one line, with its newline.
std::string response_json(const Response& response, const EngineInfo& info);

// One line about speed: "prompt 78 tokens, 1,012 tok/s; answer ...".
std::string timings_text(const Response& response, const EngineInfo& info);

}  // namespace nibble::cli
