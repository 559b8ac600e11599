// How /v1/completions writes answers.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "server/generation_job.h"
#include "server/reply_frame.h"

namespace nibble::server {

// The requests of the job are `num_generated` answers to the first prompt, then those to the next.
struct CompletionOptions {
  FrameOptions frame;
  std::vector<std::string> echoes;  // of each prompt: what is shown before its answers
  std::size_t num_generated = 1;
  std::size_t num_shown = 1;  // the likeliest of them, likeliest first; all: as generated
  bool wants_logprobs = false;
  // The prompt's too, which the first answer to it brings. Only for whole replies.
  bool echoes_logprobs = false;
};

// `host` must outlive the form.
std::unique_ptr<AnswerForm> make_completion_form(const ModelHost& host, CompletionOptions options);

}  // namespace nibble::server
