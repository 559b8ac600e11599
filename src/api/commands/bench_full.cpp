#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/activation.h"
#include "api/commands/bench_ids.h"
#include "api/commands/bench_runner.h"
#include "api/decode_path.h"
#include "base/error.h"
#include "engine/token_engine.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace nibble::commands {
namespace {

using Clock = std::chrono::steady_clock;

struct FullStream {
  engine::SequenceId id = 0;
  text::Utf8Stream utf8;
  std::string answer;
};

class FullRunner final : public BenchRunner {
 public:
  FullRunner(const BenchOptions& options, model::KernelChoice kernels, int num_threads,
             const ModelSource& source, std::optional<text::Tokenizer> tokenizer)
      : options_(options),
        kernels_(kernels),
        num_threads_(num_threads),
        source_(source),
        tokenizer_(std::move(tokenizer)),
        ids_(random_ids(source.config.vocab, 1)) {}

  int num_threads() const override {
    return engine_ ? engine_->model().num_threads() : num_threads_;
  }
  std::string decode_path() const override {
    return engine_ ? engine_->model().decode_path() : std::string();
  }
  Status prepare(const BenchTest& test) override;
  Result<std::int64_t> run(const BenchTest& test) override;

 private:
  Status add_streams(const BenchTest& test);
  Status step();

  BenchOptions options_;
  model::KernelChoice kernels_;
  int num_threads_;
  ModelSource source_;
  std::optional<text::Tokenizer> tokenizer_;
  std::vector<std::int32_t> ids_;
  std::optional<engine::TokenEngine> engine_;
  std::vector<std::string> prompts_;  // of the streams, as text
  std::vector<FullStream> streams_;
  std::vector<engine::TokenEvent> events_;
};

std::vector<std::int32_t> prompt_of(const std::vector<std::int32_t>& ids, std::int32_t stream,
                                    std::int32_t count) {
  std::vector<std::int32_t> prompt;
  for (std::int32_t i = 0; i < std::max(1, count); ++i) {
    const auto at = static_cast<std::size_t>(stream) * 7919 + static_cast<std::size_t>(i);
    prompt.push_back(ids[at % ids.size()]);
  }
  return prompt;
}

Status FullRunner::prepare(const BenchTest& test) {
  const DType dtype = stored_dtype(options_.activation);
  const std::int32_t rows = std::min(test.n_batch, test.n_ubatch);
  const std::int32_t tokens = test.n_prompt + test.n_gen + 2;
  engine::SchedulerLimits limits{.max_num_seqs = test.streams,
                                 .max_batch_tokens = rows,
                                 .max_logit_rows = std::max(64, test.streams),
                                 .window = source_.config.window};
  const std::int32_t pages = (tokens + limits.page_size - 1) / limits.page_size;
  limits.num_pages[static_cast<int>(model::CacheGroup::kFull)] = test.streams * pages;
  limits.num_pages[static_cast<int>(model::CacheGroup::kWindow)] = engine::window_pages(limits);
  model::ModelOptions wanted{.activation = dtype,
                             .kv_dtype = cache_dtype(options_.activation, options_.kv_cache),
                             .int8_experts = options_.activation == Activation::kInt8,
                             .kernels = kernels_,
                             .decode = model_decode_path(options_.decode_path),
                             .num_threads = num_threads_,
                             .max_batch_tokens = rows,
                             .max_logit_rows = limits.max_logit_rows,
                             .max_position = std::min(tokens, source_.config.max_position),
                             .page_size = limits.page_size};
  std::copy(std::begin(limits.num_pages), std::end(limits.num_pages), wanted.num_pages);
  engine_.reset();  // two models at once may not fit
  NIBBLE_ASSIGN_OR_RETURN(std::unique_ptr<model::Model> model, source_.load(wanted));
  engine_.emplace(std::move(model), limits);
  prompts_.clear();
  for (std::int32_t stream = 0; tokenizer_ && stream < test.streams; ++stream) {
    prompts_.push_back(tokenizer_->decode(prompt_of(ids_, stream, test.n_prompt)));
  }
  return {};
}

Status FullRunner::add_streams(const BenchTest& test) {
  streams_.clear();
  for (std::int32_t stream = 0; stream < test.streams; ++stream) {
    engine::TokenRequest request{.prompt = prompt_of(ids_, stream, test.n_prompt)};
    if (tokenizer_) {
      // Timed and dropped: random tokens do not come back as the same number of tokens.
      const auto encoded = tokenizer_->encode(prompts_[static_cast<std::size_t>(stream)],
                                              text::SpecialTokens::kAsText);
      NIBBLE_RETURN_IF_ERROR(encoded.empty() ? error(Code::kInternal, "bench: an empty prompt")
                                             : Status());
    }
    request.sampling.seed = static_cast<std::uint64_t>(stream);
    // Without a prompt to time, the token after its one id is made before the clock starts.
    request.max_tokens = std::max(1, test.n_gen) + (test.n_prompt == 0 ? 1 : 0);
    FullStream& added = streams_.emplace_back();
    NIBBLE_ASSIGN_OR_RETURN(added.id, engine_->add(std::move(request)));
  }
  return {};
}

Status FullRunner::step() {
  events_.clear();
  engine_->step(events_);
  for (const engine::TokenEvent& event : events_) {
    NIBBLE_RETURN_IF_ERROR(event.failure);
    if (!tokenizer_ || event.token < 0) {
      continue;
    }
    const auto stream = std::find_if(streams_.begin(), streams_.end(),
                                     [&](const FullStream& s) { return s.id == event.sequence; });
    stream->utf8.push(tokenizer_->token_bytes(event.token), stream->answer);
  }
  return {};
}

Result<std::int64_t> FullRunner::run(const BenchTest& test) {
  Clock::time_point start = Clock::now();
  NIBBLE_RETURN_IF_ERROR(add_streams(test));
  if (test.n_prompt == 0) {
    NIBBLE_RETURN_IF_ERROR(step());
    start = Clock::now();
  }
  while (engine_->has_work()) {
    NIBBLE_RETURN_IF_ERROR(step());
  }
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

}  // namespace

Result<std::unique_ptr<BenchRunner>> make_full_runner(const BenchOptions& options,
                                                      model::KernelChoice kernels,
                                                      std::int32_t num_threads,
                                                      const ModelSource& source) {
  std::optional<text::Tokenizer> tokenizer;
  Result<text::Tokenizer> loaded = text::Tokenizer::load(options.model);
  if (loaded.has_value()) {
    tokenizer = std::move(*loaded);
  } else if (loaded.error().code() != Code::kNotFound) {
    return loaded.error();
  }
  return std::unique_ptr<BenchRunner>(
      std::make_unique<FullRunner>(options, kernels, num_threads, source, std::move(tokenizer)));
}

}  // namespace nibble::commands
