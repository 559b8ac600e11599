// A TokenEngine over a checkpoint folder, and the two things that tests ask of one.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/token_engine.h"
#include "model/model.h"

namespace nibble::testing_support {

struct EngineSetup {
  DType activation = DType::kF32;
  DType cache = DType::kBool;  // kBool: as activations
  bool int8_experts = false;
  model::KernelChoice kernels = model::KernelChoice::kCpu;
  std::int32_t max_batch_tokens = 512;
  std::int32_t max_logit_rows = 512;
  std::int32_t page_size = 64;
  std::int32_t max_num_seqs = 1;
  std::int32_t max_tokens = 1312;   // of a sequence
  std::int32_t num_full_pages = 0;  // 0: for every sequence at full length
  bool shares_prefixes = true;
  model::Tap tap;
};

// Null, and a failed test, when the model does not load.
inline std::unique_ptr<engine::TokenEngine> make_engine(const std::string& folder,
                                                        const EngineSetup& setup) {
  const auto config = model::load_config(folder);
  if (!config) {
    ADD_FAILURE() << config.error().message();
    return nullptr;
  }
  engine::SchedulerLimits limits{.max_num_seqs = setup.max_num_seqs,
                                 .max_batch_tokens = setup.max_batch_tokens,
                                 .max_logit_rows = setup.max_logit_rows,
                                 .page_size = setup.page_size,
                                 .window = config->window,
                                 .shares_prefixes = setup.shares_prefixes};
  limits.num_pages[0] = setup.num_full_pages > 0 ? setup.num_full_pages
                                                 : (setup.max_tokens + setup.page_size - 1) /
                                                       setup.page_size * setup.max_num_seqs;
  limits.num_pages[1] = engine::window_pages(limits) + limits.num_pages[0];
  model::ModelOptions options{
      .activation = setup.activation,
      .kv_dtype = setup.cache == DType::kBool ? setup.activation : setup.cache,
      .int8_experts = setup.int8_experts,
      .kernels = setup.kernels,
      .num_threads = 2,
      .max_batch_tokens = setup.max_batch_tokens,
      .max_logit_rows = setup.max_logit_rows,
      .max_position = setup.max_tokens,
      .page_size = setup.page_size,
      .num_pages = {limits.num_pages[0], limits.num_pages[1]}};
  auto model = model::load_model(folder, options);
  if (!model) {
    ADD_FAILURE() << model.error().message();
    return nullptr;
  }
  (*model)->set_tap(setup.tap);
  return std::make_unique<engine::TokenEngine>(*std::move(model), limits);
}

// Logits [ids, vocab] at every position. Fails the test when the engine does.
inline std::vector<float> all_logits(engine::TokenEngine& engine,
                                     const std::vector<std::int32_t>& ids) {
  std::vector<float> out;
  std::int32_t expected = 0;
  engine::TokenRequest request{.prompt = ids};
  request.on_prompt_logits = [&](std::int32_t position, std::span<const float> logits) {
    EXPECT_EQ(position, expected++);
    out.insert(out.end(), logits.begin(), logits.end());
  };
  const auto id = engine.add(std::move(request));
  EXPECT_TRUE(id.has_value()) << (id ? "" : id.error().message());
  std::vector<engine::TokenEvent> events;
  while (engine.has_work()) {
    engine.step(events);
  }
  for (const engine::TokenEvent& event : events) {
    EXPECT_TRUE(event.failure.ok()) << event.failure.message();
  }
  EXPECT_EQ(expected, static_cast<std::int32_t>(ids.size()));
  return out;
}

}  // namespace nibble::testing_support
