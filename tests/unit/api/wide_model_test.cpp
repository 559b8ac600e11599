// The layers of gpt-oss-120b, two of them, with narrow inputs: 128 experts of which 4 are taken, 64
// heads of 64 on 8 key heads. The published widths are in tests/e2e/large_test.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "api/commands/presets.h"
#include "api/commands/verify.h"
#include "model/model.h"
#include "model/random_weights.h"
#include "model/tensor_list.h"
#include "support/folder.h"
#include "weights/writer.h"

namespace nibble::commands {
namespace {

using testing_support::TemporaryFolder;

constexpr std::int32_t kTokens = 150;  // past the window

void write_model(const std::string& folder) {
  Preset preset = *find_preset("gpt-oss-120b");
  set_layers(preset, 2);
  preset.config.hidden = 96;
  preset.config.intermediate = 32;
  preset.config.vocab = 512;
  preset.ids = {.bos = 1, .end_of_text = 2, .end_of_turn = 3, .call = 4};
  const auto fill = [](const weights::TensorSpec& spec, std::int64_t offset,
                       std::span<std::byte> out) {
    return model::fill_random(3, spec, offset, out);
  };
  const Status status = weights::write_checkpoint(
      folder, model::tensor_list(preset.config, model::ExpertFormat::kMxfp4), fill, {}, nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  testing_support::write_file(folder + "/config.json", config_json(preset));
  testing_support::write_file(folder + "/generation_config.json", generation_config_json(preset));
}

// The ids of a row's 4 largest router logits.
void add_choice(std::span<const float> row, std::set<std::size_t>& chosen) {
  std::vector<std::size_t> ids(row.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = i;
  }
  std::partial_sort(ids.begin(), ids.begin() + 4, ids.end(),
                    [&](std::size_t a, std::size_t b) { return row[a] > row[b]; });
  chosen.insert(ids.begin(), ids.begin() + 4);
}

TEST(WideModel, EveryBlockOf128ExpertsAnd64HeadsAgreesWithTheReference) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_model(folder.path()));
  for (const Activation activation : {Activation::kF32, Activation::kBf16}) {
    const auto report =
        verify({.model = folder.path(), .num_tokens = kTokens, .activation = activation},
               [](std::int32_t, std::int32_t) {});
    ASSERT_TRUE(report.has_value()) << report.error().message();
    EXPECT_EQ(report->rows.size(), 7U);
    EXPECT_TRUE(report->is_ok) << report->activation;
  }
}

// Otherwise the test above would say little about the far ones.
TEST(WideModel, NearlyEveryExpertIsTakenTheLastOneToo) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_model(folder.path()));
  model::ModelOptions options;
  options.max_batch_tokens = options.page_size = kTokens;
  options.max_logit_rows = 1;
  options.num_pages[0] = options.num_pages[1] = 1;
  const auto model = model::load_model(folder.path(), options);
  ASSERT_TRUE(model.has_value()) << model.error().message();
  std::set<std::size_t> chosen;
  (*model)->set_tap([&](model::TapPlace place, std::int32_t, std::span<float> values) {
    for (std::size_t row = 0; place == model::TapPlace::kRouter && row < kTokens; ++row) {
      ASSERT_EQ(values.size(), kTokens * 128U);
      add_choice(values.subspan(row * 128, 128), chosen);
    }
  });
  model::BatchPlan plan{.logit_rows = {0}, .page_size = kTokens};
  for (std::int32_t i = 0; i < kTokens; ++i) {
    plan.token_ids.push_back(i * 7 % 512);
  }
  model::SequencePlan sequence{.num_rows = kTokens};
  sequence.tables[0].pages = sequence.tables[1].pages = {0};
  plan.sequences.push_back(sequence);
  std::vector<float> logits(512);
  ASSERT_TRUE((*model)->forward(plan, logits).ok());
  EXPECT_GT(chosen.size(), 110U);
  EXPECT_EQ(*chosen.rbegin(), 127U);
}

}  // namespace
}  // namespace nibble::commands
