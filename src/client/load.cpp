#include "client/load.h"

#include <memory>
#include <utility>

#include "base/error.h"
#include "client/arrivals.h"
#include "text/tokenizer.h"

namespace nibble::client {
namespace {

std::vector<Exchange> exchanges_for(const LoadOptions& options, const std::vector<Prompt>& prompts,
                                    const std::vector<double>& arrivals) {
  std::vector<Exchange> exchanges;
  exchanges.reserve(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    exchanges.push_back({arrivals[i], options.endpoint, request_body(options.shape, prompts[i])});
  }
  return exchanges;
}

std::int32_t output_tokens(const StreamReader& reader, const RequestRecord& record,
                           const text::Tokenizer* tokenizer) {
  if (reader.counted_output() > 0) {
    return reader.counted_output();
  }
  if (tokenizer != nullptr && !record.text.empty()) {
    return static_cast<std::int32_t>(
        tokenizer->encode(record.text, text::SpecialTokens::kAsText).size());
  }
  return reader.num_token_chunks();
}

Result<LoadResult> send(const LoadOptions& options, const std::vector<Prompt>& prompts,
                        const std::vector<double>& arrivals, const text::Tokenizer* tokenizer,
                        const std::function<void(std::int32_t)>& on_progress) {
  const std::vector<Exchange> exchanges = exchanges_for(options, prompts, arrivals);
  LoadResult result;
  result.records.resize(prompts.size());
  std::vector<StreamReader> readers;
  readers.reserve(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    result.records[i].input_len = prompts[i].num_tokens;
    readers.emplace_back(result.records[i]);
  }
  std::int32_t num_ended = 0;
  const ExchangeEvents events{
      .on_start = [&](std::size_t i, Clock::time_point now) { readers[i].start(now); },
      .on_status = [&](std::size_t i, int status) { readers[i].set_status(status); },
      .on_body = [&](std::size_t i, std::string_view bytes,
                     Clock::time_point now) { readers[i].read(bytes, now); },
      .on_end =
          [&](std::size_t i, const Status& status) {
            readers[i].end(status);
            if (on_progress) {
              on_progress(++num_ended);
            }
          }};
  const Clock::time_point begin = Clock::now();
  NIBBLE_RETURN_IF_ERROR(run_exchanges(
      options.server, options.headers, exchanges,
      {.max_concurrency = options.max_concurrency, .timeout_s = options.timeout_s}, events));
  result.duration_s = std::chrono::duration<double>(Clock::now() - begin).count();
  for (std::size_t i = 0; i < readers.size(); ++i) {
    RequestRecord& record = result.records[i];
    record.output_len = record.is_success ? output_tokens(readers[i], record, tokenizer) : 0;
  }
  return result;
}

Status warm_up(const LoadOptions& options, const Prompt& prompt) {
  const auto count = static_cast<std::size_t>(options.num_warmups);
  NIBBLE_ASSIGN_OR_RETURN(const LoadResult result,
                          send(options, std::vector<Prompt>(count, prompt),
                               std::vector<double>(count, 0.0), nullptr, {}));
  for (const RequestRecord& record : result.records) {
    if (!record.is_success) {
      return error(Code::kInternal, "warm-up: {}", record.error);
    }
  }
  return {};
}

}  // namespace

Result<std::string> model_of_server(const LoadOptions& options) {
  NIBBLE_ASSIGN_OR_RETURN(const Answer answer,
                          get(options.server, options.headers, "/v1/models", options.timeout_s));
  if (answer.status != 200) {
    return error(Code::kInternal, "/v1/models: want status 200, found {}; --model names the model",
                 answer.status);
  }
  return first_model(answer.body);
}

Result<LoadResult> run_load(const LoadOptions& options, const std::vector<Prompt>& prompts,
                            const text::Tokenizer* tokenizer,
                            const std::function<void(std::int32_t)>& on_progress) {
  if (options.num_warmups > 0 && !prompts.empty()) {
    NIBBLE_RETURN_IF_ERROR(warm_up(options, prompts.front()));
  }
  const auto count = static_cast<std::int32_t>(prompts.size());
  return send(options, prompts,
              arrival_times(count, options.request_rate, options.burstiness, options.seed),
              tokenizer, on_progress);
}

}  // namespace nibble::client
