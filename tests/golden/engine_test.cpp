// The engine over real checkpoints: every position's argmax and log-probability, greedy
// continuations, and bits that do not depend on how a prompt is cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "support/engine_under_test.h"
#include "support/folder.h"
#include "support/golden_logits.h"
#include "weights/checkpoint.h"
#include "weights/writer.h"

namespace nibble::engine {
namespace {

using testing_support::all_logits;
using testing_support::EngineSetup;
using testing_support::GoldenSequence;
using testing_support::make_engine;
using testing_support::read_golden;

// Of a logit, in float32; docs/numerics.md derives it. A log-probability is a logit minus a
// log-sum-exp, which moves by as much at most.
constexpr float kLogitBound = 1e-3F;
constexpr float kLogprobBound = 2 * kLogitBound;

const std::string kSource = NIBBLE_SOURCE_DIR "/";
const std::string kTiny = kSource + "tests/golden/tiny";
const std::string kDemo = kSource + "models/demo";

float largest_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0.0F;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    largest = difference <= largest ? largest : difference;  // NaN counts
  }
  return largest;
}

std::span<const float> row(const std::vector<float>& logits, std::size_t index, std::size_t vocab) {
  return std::span(logits).subspan(index * vocab, vocab);
}

std::string golden_folder(const std::string& name) { return kSource + "tests/golden/" + name; }

std::vector<std::int32_t> first_ids(const std::vector<std::int32_t>& ids, std::ptrdiff_t count) {
  return {ids.begin(), ids.begin() + count};
}

TEST(GoldenEngine, ArgmaxIsEqualAtEveryPosition) {
  for (const std::string name : {"tiny", "odd"}) {
    const std::string folder = golden_folder(name);
    const auto engine = make_engine(folder, {.max_logit_rows = 64});
    ASSERT_NE(engine, nullptr);
    const auto vocab = static_cast<std::size_t>(engine->model().config().vocab);
    const auto golden = read_golden(folder + "/golden.safetensors");
    ASSERT_FALSE(golden.empty());
    for (const auto& [sequence_name, sequence] : golden) {
      ASSERT_EQ(sequence.argmax.size(), sequence.ids.size());
      const std::vector<float> logits = all_logits(*engine, sequence.ids);
      ASSERT_EQ(logits.size(), sequence.ids.size() * vocab);
      for (std::size_t i = 0; i < sequence.ids.size(); ++i) {
        const auto values = row(logits, i, vocab);
        const auto best = std::max_element(values.begin(), values.end()) - values.begin();
        ASSERT_EQ(best, sequence.argmax[i]) << name << " " << sequence_name << " position " << i;
      }
      for (std::size_t i = 0; i < sequence.positions.size(); ++i) {
        const auto position = static_cast<std::size_t>(sequence.positions[i]);
        ASSERT_LE(largest_difference(row(logits, position, vocab), row(sequence.logits, i, vocab)),
                  kLogitBound)
            << name << " " << sequence_name << " position " << position;
      }
    }
  }
}

TEST(GoldenEngine, LogProbabilityOfEveryNextTokenAgrees) {
  const auto engine = make_engine(kDemo, {.max_logit_rows = 64});
  ASSERT_NE(engine, nullptr);
  const auto vocab = static_cast<std::size_t>(engine->model().config().vocab);
  float largest = 0.0F;
  for (const auto& [name, sequence] :
       read_golden(kSource + "tests/golden/demo/golden.safetensors")) {
    if (sequence.logprob_of_next.empty()) {
      continue;
    }
    const std::vector<float> logits = all_logits(*engine, sequence.ids);
    std::vector<float> logprobs;
    for (std::size_t i = 0; i + 1 < sequence.ids.size(); ++i) {
      const auto logprob = logprob_of(row(logits, i, vocab), sequence.ids[i + 1], 0);
      ASSERT_TRUE(logprob.has_value());
      logprobs.push_back(logprob->logprob);
    }
    const float difference = largest_difference(logprobs, sequence.logprob_of_next);
    EXPECT_LE(difference, kLogprobBound) << "dialogue " << name;
    largest = std::max(largest, difference);
  }
  std::printf("largest difference of a log-probability %.3g\n", largest);
  EXPECT_GT(largest, 0.0F) << "nothing was compared";
}

// Fifteen dialogues, eight at a time: batching must not show.
TEST(GoldenEngine, GreedyContinuationsAreEqualTokenByToken) {
  std::ifstream in(kSource + "tests/golden/demo/greedy.json");
  const nlohmann::json dialogues = nlohmann::json::parse(in);
  ASSERT_EQ(dialogues.size(), 15U);
  const auto engine =
      make_engine(kDemo, {.max_logit_rows = 8, .max_num_seqs = 8, .max_tokens = 512});
  ASSERT_NE(engine, nullptr);
  std::map<SequenceId, std::vector<std::int32_t>> wanted;
  std::map<SequenceId, std::vector<std::int32_t>> found;
  for (const nlohmann::json& dialogue : dialogues) {
    const auto continuation = dialogue["continuation_ids"].get<std::vector<std::int32_t>>();
    TokenRequest request{.prompt = dialogue["prompt_ids"].get<std::vector<std::int32_t>>(),
                         .max_tokens = static_cast<std::int32_t>(continuation.size())};
    request.sampling.temperature = 0.0F;
    const auto id = engine->add(std::move(request));
    ASSERT_TRUE(id.has_value()) << id.error().message();
    wanted[*id] = continuation;
  }
  std::vector<TokenEvent> events;
  while (engine->has_work()) {
    engine->step(events);
  }
  for (const TokenEvent& event : events) {
    ASSERT_NE(event.finish, Finish::kFailed) << event.failure.message();
    found[event.sequence].push_back(event.token);
  }
  EXPECT_EQ(found, wanted);
}

struct Cut {
  std::int32_t chunk;
  std::int32_t page_size;
};

// Window of 128: chunks and pages below, at and above it.
// Two cuts of a prompt over a cache of codes: a row's scale does not depend on what is stored
// beside it.
TEST(GoldenEngine, ChunksAndPagesDoNotChangeABitOfACacheOfCodes) {
  const auto golden = read_golden(kTiny + "/golden.safetensors");
  const std::vector<std::int32_t> ids = first_ids(golden.at("long").ids, 300);
  const auto whole = make_engine(kTiny, {.activation = DType::kBF16, .cache = DType::kE4M3});
  ASSERT_NE(whole, nullptr);
  const std::vector<float> expected = all_logits(*whole, ids);
  for (const Cut cut : {Cut{1, 16}, Cut{129, 256}}) {
    const auto engine = make_engine(kTiny, {.activation = DType::kBF16,
                                            .cache = DType::kE4M3,
                                            .max_batch_tokens = cut.chunk,
                                            .page_size = cut.page_size});
    ASSERT_NE(engine, nullptr);
    EXPECT_TRUE(all_logits(*engine, ids) == expected) << cut.chunk << ", " << cut.page_size;
  }
}

TEST(GoldenEngine, ChunksAndPagesDoNotChangeABit) {
  const auto golden = read_golden(kTiny + "/golden.safetensors");
  const std::vector<std::int32_t> ids = first_ids(golden.at("long").ids, 700);
  const auto whole = make_engine(kTiny, {.max_batch_tokens = 700, .max_logit_rows = 700});
  ASSERT_NE(whole, nullptr);
  const std::vector<float> expected = all_logits(*whole, ids);
  for (const Cut cut : {Cut{1, 16}, Cut{100, 256}, Cut{128, 64}, Cut{129, 16}, Cut{129, 256},
                        Cut{300, 64}, Cut{300, 256}, Cut{512, 16}}) {
    const auto engine =
        make_engine(kTiny, {.max_batch_tokens = cut.chunk, .page_size = cut.page_size});
    ASSERT_NE(engine, nullptr);
    EXPECT_TRUE(all_logits(*engine, ids) == expected)
        << "chunks of " << cut.chunk << ", pages of " << cut.page_size << ": largest difference "
        << largest_difference(all_logits(*engine, ids), expected);
  }
}

// What a token is generated from equals what the same prefix gives as a prompt.
TEST(GoldenEngine, DecodingEqualsPrefill) {
  for (const DType activation : {DType::kF32, DType::kBF16}) {
    const auto golden = read_golden(kTiny + "/golden.safetensors");
    const auto engine = make_engine(kTiny, {.activation = activation});
    ASSERT_NE(engine, nullptr);
    TokenRequest request{
        .prompt = first_ids(golden.at("long").ids, 100), .max_tokens = 60, .top_logprobs = 3};
    std::vector<std::int32_t> ids = request.prompt;
    ASSERT_TRUE(engine->add(request).has_value());
    std::vector<TokenEvent> events;
    while (engine->has_work()) {
      engine->step(events);
    }
    ASSERT_EQ(events.size(), 60U);
    for (const TokenEvent& event : events) {
      ids.push_back(event.token);
    }
    const std::vector<float> logits = all_logits(*engine, ids);
    const auto vocab = static_cast<std::size_t>(engine->model().config().vocab);
    for (std::size_t i = 0; i < events.size(); ++i) {
      const auto again = logprob_of(row(logits, 99 + i, vocab), events[i].token, 3);
      ASSERT_TRUE(again.has_value());
      EXPECT_EQ(again->logprob, events[i].logprob.logprob) << i;
      EXPECT_EQ(again->top, events[i].logprob.top) << i;
    }
  }
}

std::vector<TokenEvent> run_all(TokenEngine& engine) {
  std::vector<TokenEvent> events;
  while (engine.has_work()) {
    engine.step(events);
  }
  return events;
}

TokenRequest sampled(std::vector<std::int32_t> prompt, std::int32_t max_tokens,
                     std::uint64_t seed) {
  TokenRequest request{.prompt = std::move(prompt), .max_tokens = max_tokens, .top_logprobs = 3};
  request.sampling.seed = seed;
  return request;
}

// Tokens with log-probabilities, as bits.
using Bits = std::vector<std::pair<std::int32_t, std::vector<std::pair<std::int32_t, float>>>>;
Bits bits_of(const std::vector<TokenEvent>& events, SequenceId id) {
  Bits out;
  for (const TokenEvent& event : events) {
    if (event.sequence == id) {
      EXPECT_NE(event.finish, Finish::kFailed) << event.failure.message();
      out.emplace_back(event.token, event.logprob.top);
      out.back().second.emplace_back(event.token, event.logprob.logprob);
    }
  }
  return out;
}

// The same with a prefix from the cache as without: whole prompts, conversations that go on,
// prompts that part in the middle; window layers included.
TEST(GoldenEngine, CachedPrefixesDoNotChangeABit) {
  const std::vector<std::int32_t> ids = read_golden(kTiny + "/golden.safetensors").at("long").ids;
  for (const auto& [activation, page_size] :
       {std::pair{DType::kF32, 16}, {DType::kF32, 256}, {DType::kBF16, 64}}) {
    EngineSetup setup{.activation = activation, .max_batch_tokens = 200, .page_size = page_size};
    const auto sharing = make_engine(kTiny, setup);
    setup.shares_prefixes = false;
    const auto plain = make_engine(kTiny, setup);
    ASSERT_TRUE(sharing != nullptr && plain != nullptr);
    std::int32_t cached = 0;
    for (const auto& [shared, own] : {std::pair{0, 300}, {300, 0}, {300, 90}, {257, 40}}) {
      std::vector<std::int32_t> prompt = first_ids(ids, shared);
      prompt.insert(prompt.end(), ids.end() - own, ids.end());
      if (shared == 0) {
        prompt = first_ids(ids, own);
      }
      const auto a = sharing->add(sampled(prompt, 20, 5));
      const auto b = plain->add(sampled(prompt, 20, 5));
      const auto events = run_all(*sharing);
      EXPECT_EQ(bits_of(events, a.value()), bits_of(run_all(*plain), b.value()))
          << "pages of " << page_size << ", " << events[0].cached_tokens << " cached";
      EXPECT_EQ(events[0].cached_tokens > 0, shared > page_size) << page_size;
      cached += events[0].cached_tokens;
    }
    EXPECT_GT(cached, 500);
  }
}

// Among 64 others, which come and go in every phase, with prefixes in common and too few pages.
TEST(GoldenEngine, AnAnswerIsTheSameAloneAndAmongSixtyFourOthers) {
  const std::vector<std::int32_t> ids = read_golden(kTiny + "/golden.safetensors").at("long").ids;
  const auto request = [&](std::int32_t index) {
    std::vector<std::int32_t> prompt = first_ids(ids, 20 + index % 5 * 30);
    prompt.push_back(index % 7);
    return sampled(std::move(prompt), 24, static_cast<std::uint64_t>(index));
  };
  EngineSetup setup{
      .max_batch_tokens = 64, .max_logit_rows = 32, .page_size = 16, .max_tokens = 256};
  const auto alone = make_engine(kTiny, setup);
  setup.max_num_seqs = 32;
  setup.num_full_pages = 48;
  const auto engine = make_engine(kTiny, setup);
  ASSERT_TRUE(alone != nullptr && engine != nullptr);
  std::vector<SequenceId> others;
  std::vector<TokenEvent> events;
  SequenceId watched = 0;
  for (std::int32_t i = 0; i < 65; ++i) {
    const auto id = engine->add(request(i));
    ASSERT_TRUE(id.has_value());
    i == 40 ? watched = *id : (others.push_back(*id), SequenceId{0});
    if (i % 3 == 0) {
      engine->step(events);
    }
    if (i % 9 == 8) {
      engine->cancel(others[static_cast<std::size_t>(i) / 2]);
    }
  }
  const auto rest = run_all(*engine);
  events.insert(events.end(), rest.begin(), rest.end());
  EXPECT_GT(engine->scheduler().num_preemptions(), 0);
  EXPECT_GT(engine->scheduler().counters().hit_tokens, 0);
  const auto id = alone->add(request(40));
  EXPECT_EQ(bits_of(events, watched), bits_of(run_all(*alone), id.value()));
}

// A failed sequence leaves NaN behind in the pages that the next one takes.
TEST(GoldenEngine, NanInFreedPagesChangesNothing) {
  const auto golden = read_golden(kTiny + "/golden.safetensors");
  const std::vector<std::int32_t> ids = golden.at("window").ids;
  std::int32_t poisoned_layer = -1;
  EngineSetup setup{.max_batch_tokens = 100,
                    .page_size = 16,
                    .max_tokens = 208,
                    .shares_prefixes = false};  // every run computes every row
  setup.tap = [&](model::TapPlace place, std::int32_t layer, std::span<float> values) {
    if (place == model::TapPlace::kExperts && layer == poisoned_layer) {
      std::fill(values.begin(), values.end(), NAN);
    }
  };
  const auto engine = make_engine(kTiny, setup);
  ASSERT_NE(engine, nullptr);
  const std::vector<float> expected = all_logits(*engine, ids);
  for (poisoned_layer = 0; poisoned_layer < 3; ++poisoned_layer) {
    for (int repeat = 0; repeat < 4; ++repeat) {  // several chunks each, over all pages
      const std::int32_t layer = poisoned_layer;
      TokenRequest request{.prompt = ids, .max_tokens = 1};
      ASSERT_TRUE(engine->add(std::move(request)).has_value());
      std::vector<TokenEvent> events;
      poisoned_layer = -1;
      engine->step(events);  // half of the prompt with sound values
      poisoned_layer = layer;
      engine->step(events);
      ASSERT_EQ(events.size(), 1U);
      EXPECT_EQ(events[0].finish, Finish::kFailed);
      EXPECT_EQ(events[0].failure.code(), Code::kInternal);
    }
    const std::int32_t layer = poisoned_layer;
    poisoned_layer = -1;
    EXPECT_TRUE(all_logits(*engine, ids) == expected) << "after NaN behind layer " << layer;
    poisoned_layer = layer;
  }
}

// Rewrites the tensors of `source` in shards of at most `shard_bytes`.
void write_sharded(const std::string& source, const std::string& destination,
                   std::int64_t shard_bytes) {
  const auto checkpoint = weights::Checkpoint::open(source);
  ASSERT_TRUE(checkpoint.has_value());
  std::vector<weights::TensorSpec> specs;
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    specs.push_back({name, tensor.view.shape, {tensor.view.dtype}});
  }
  const auto fill = [&](const weights::TensorSpec& spec, std::int64_t offset,
                        std::span<std::byte> out) -> Status {
    const auto* data = static_cast<const std::byte*>(checkpoint->find(spec.name)->view.data);
    std::copy_n(data + offset, out.size(), out.begin());
    return {};
  };
  const Status status = weights::write_checkpoint(destination, specs, fill,
                                                  {.max_shard_bytes = shard_bytes}, nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
}

// `rope_scaling` and `rope_theta`, as transformers 5 writes them.
std::string with_rope_parameters(const std::string& config) {
  nlohmann::json object = nlohmann::json::parse(config);
  object["rope_parameters"] = object["rope_scaling"];
  object["rope_parameters"]["rope_theta"] = object["rope_theta"];
  object.erase("rope_scaling");
  object.erase("rope_theta");
  return object.dump();
}

TEST(GoldenEngine, EverySpellingGivesTheSameBits) {
  for (const std::string name : {"tests/golden/tiny", "tests/golden/odd", "tests/golden/tiny-bf16",
                                 "tests/golden/tiny-original", "models/demo"}) {
    const std::string source = kSource + name;
    const testing_support::TemporaryFolder folder;
    const std::string config = testing_support::read_file(source + "/config.json");
    const bool is_original = name.ends_with("original");  // has one spelling
    testing_support::write_file(folder / "config.json",
                                is_original ? config : with_rope_parameters(config));
    write_sharded(source, folder.path(), name == "models/demo" ? 4'000'000 : 200'000);
    ASSERT_FALSE(std::filesystem::exists(folder / "model.safetensors"));
    ASSERT_TRUE(std::filesystem::exists(folder / "model.safetensors.index.json"));
    const EngineSetup setup{.max_logit_rows = 64, .max_tokens = 256};
    const auto one_file = make_engine(source, setup);
    const auto sharded = make_engine(folder.path(), setup);
    ASSERT_TRUE(one_file != nullptr && sharded != nullptr);
    std::vector<std::int32_t> ids(150);
    for (std::int32_t i = 0; i < 150; ++i) {
      ids[i] = i * 7 % 500;
    }
    EXPECT_TRUE(all_logits(*one_file, ids) == all_logits(*sharded, ids)) << name;
  }
}

double root_mean_square(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) {
    sum += double{value} * value;
  }
  return std::sqrt(sum / static_cast<double>(values.size()));
}

struct Deviation {
  double relative = 0.0;  // root mean square of the differences over that of the logits
  float largest = 0.0F;
};

Deviation deviation(const std::vector<float>& logits, const GoldenSequence& golden,
                    std::size_t vocab) {
  std::vector<float> differences;
  Deviation out;
  for (std::size_t i = 0; i < golden.positions.size(); ++i) {
    const auto computed = row(logits, static_cast<std::size_t>(golden.positions[i]), vocab);
    for (std::size_t j = 0; j < vocab; ++j) {
      differences.push_back(computed[j] - golden.logits[i * vocab + j]);
      out.largest = std::max(out.largest, std::abs(differences.back()));
    }
  }
  out.relative = root_mean_square(differences) / root_mean_square(golden.logits);
  return out;
}

// Router logits of a run, in the order of the calls.
class RouterTape {
 public:
  model::Tap recorder() {
    return [this](model::TapPlace place, std::int32_t /*layer*/, std::span<float> values) {
      if (place == model::TapPlace::kRouter) {
        calls_.emplace_back(values.begin(), values.end());
      }
    };
  }
  model::Tap player() {
    return [this](model::TapPlace place, std::int32_t /*layer*/, std::span<float> values) {
      if (place == model::TapPlace::kRouter) {
        ASSERT_LT(next_, calls_.size());
        ASSERT_EQ(values.size(), calls_[next_].size());
        std::copy(calls_[next_].begin(), calls_[next_].end(), values.begin());
        ++next_;
      }
    };
  }

 private:
  std::vector<std::vector<float>> calls_;
  std::size_t next_ = 0;
};

// A golden prompt, its float32 run, and how far other set-ups come from the golden logits.
class RecordedRun {
 public:
  explicit RecordedRun(const std::string& name)
      : model_(kSource + name),
        golden_(read_golden(kSource + (name == "models/demo" ? "tests/golden/demo" : name) +
                            "/golden.safetensors")
                    .at("long")) {
    vocab_ = logits({.max_logit_rows = kRows, .tap = tape_.recorder()}).size() / golden_.ids.size();
  }

  bool is_complete() const { return vocab_ > 0; }
  double num_layers() const { return model::load_config(model_)->num_layers; }

  // With the float32 run's choice of experts.
  Deviation with_its_routing(EngineSetup setup) const {
    RouterTape tape = tape_;
    setup.tap = tape.player();
    return with_own_routing(std::move(setup));
  }
  Deviation with_own_routing(EngineSetup setup) const {
    setup.max_logit_rows = kRows;
    return deviation(logits(setup), golden_, vocab_);
  }

 private:
  static constexpr std::int32_t kRows = 64;

  std::vector<float> logits(const EngineSetup& setup) const {
    const auto engine = make_engine(model_, setup);
    return engine == nullptr ? std::vector<float>() : all_logits(*engine, golden_.ids);
  }

  std::string model_;
  GoldenSequence golden_;
  RouterTape tape_;
  std::size_t vocab_ = 0;
};

constexpr const char* kRecorded[] = {"tests/golden/tiny", "tests/golden/odd", "models/demo"};

// Rounding to bf16 changes a value by 2^-8 of it at most and 2^-9 on average. Each layer rounds six
// times (two normed inputs; q, k and v; the attention's output; the experts' middle), the head
// once, and the residual stays float32. The bound takes every error at its average size, all of
// them pointing the same way and none amplified: (6 L + 1) * 2^-9 of the logits' root mean square
// (docs/numerics.md). It holds while the same experts are chosen, so both runs use the router
// logits of the float32 one. A choice that is closer than the rounding may fall differently in a
// run of its own, which exchanges an expert's whole output and has no such bound: it is printed.
TEST(GoldenEngine, Bf16ActivationsStayWithinTheirRounding) {
  for (const std::string name : kRecorded) {
    const RecordedRun recorded(name);
    ASSERT_TRUE(recorded.is_complete());
    const EngineSetup setup{.activation = DType::kBF16};
    const Deviation rounding = recorded.with_its_routing(setup);
    const Deviation alone = recorded.with_own_routing(setup);
    std::printf(
        "%s in bf16: largest difference %.3g, relative root mean square %.3g; with its own "
        "routing %.3g and %.3g\n",
        name.c_str(), rounding.largest, rounding.relative, alone.largest, alone.relative);
    EXPECT_LE(rounding.relative, (6 * recorded.num_layers() + 1) * 0x1p-9) << name;
    EXPECT_GT(rounding.largest, kLogitBound) << name << ": nothing was rounded";
  }
}

// Two inputs of each layer's experts move by up to half a 127th of the largest of 32 values, which
// is at most sqrt(32) times their root mean square: sqrt(32) / (127 sqrt(12)) of it in the mean
// square. That comes in the place of two of the roundings above, and is added to all of them.
TEST(GoldenEngine, Int8InputsOfExpertsStayWithinTheirRounding) {
  for (const std::string name : kRecorded) {
    const RecordedRun recorded(name);
    ASSERT_TRUE(recorded.is_complete());
    EngineSetup setup{.activation = DType::kBF16};
    const Deviation in_bf16 = recorded.with_its_routing(setup);
    setup.int8_experts = true;
    const Deviation in_int8 = recorded.with_its_routing(setup);
    const double layers = recorded.num_layers();
    std::printf("%s in int8: relative root mean square %.3g, bf16 %.3g\n", name.c_str(),
                in_int8.relative, in_bf16.relative);
    EXPECT_LE(in_int8.relative,
              (6 * layers + 1) * 0x1p-9 + 2 * layers * std::sqrt(32.0 / 12.0) / 127.0)
        << name;
    EXPECT_GT(in_int8.relative, in_bf16.relative) << name << ": nothing was rounded";
  }
}

// Keys and values of each layer move by up to 2^-4 of each number, 2^-4 / sqrt(3) in the mean
// square where that is largest; all of them the same way and none amplified, added to the roundings
// of bf16.
TEST(GoldenEngine, ACacheOfCodesStaysWithinItsRounding) {
  for (const std::string name : kRecorded) {
    const RecordedRun recorded(name);
    ASSERT_TRUE(recorded.is_complete());
    EngineSetup setup{.activation = DType::kBF16};
    const Deviation in_bf16 = recorded.with_its_routing(setup);
    setup.cache = DType::kE4M3;
    const Deviation in_codes = recorded.with_its_routing(setup);
    const Deviation alone = recorded.with_own_routing(setup);
    const double layers = recorded.num_layers();
    std::printf(
        "%s over a cache of e4m3: largest difference %.3g, relative root mean square %.3g; bf16 "
        "%.3g and %.3g; with its own routing %.3g and %.3g\n",
        name.c_str(), in_codes.largest, in_codes.relative, in_bf16.largest, in_bf16.relative,
        alone.largest, alone.relative);
    EXPECT_LE(in_codes.relative, (6 * layers + 1) * 0x1p-9 + 2 * layers * 0x1p-4 / std::sqrt(3.0))
        << name;
    EXPECT_GT(in_codes.relative, in_bf16.relative) << name << ": nothing was rounded";
  }
}

}  // namespace
}  // namespace nibble::engine
