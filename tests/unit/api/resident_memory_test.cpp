#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "api/commands/make_model.h"
#include "nibble/engine.h"
#include "support/folder.h"

namespace nibble {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

constexpr std::int64_t kMiB = 1 << 20;
// Tensor names and views, the heap's own reserve, the stacks of the workers.
constexpr std::int64_t kSlack = 12 * kMiB;

struct Resident {
  std::int64_t anonymous = 0;
  std::int64_t mapped = 0;
};

Resident resident() {
  Resident out;
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("RssAnon:")) {
      out.anonymous = std::stoll(line.substr(8)) * 1024;
    } else if (line.starts_with("RssFile:")) {
      out.mapped = std::stoll(line.substr(8)) * 1024;
    }
  }
  return out;
}

// The weights are read where they are mapped; a copy of them would show as anonymous memory.
TEST(ResidentMemory, IsTheFilePlusCacheAndWorkspace) {
  if (kIsSanitized) {
    GTEST_SKIP() << "sanitizers keep memory of their own";
  }
  const testing_support::TemporaryFolder folder;
  const std::string model = folder / "model";
  const Status made =
      commands::make_model({.preset = "tiny", .destination = model, .num_layers = 300}, nullptr);
  ASSERT_TRUE(made.ok()) << made.message();

  const Resident before = resident();
  auto engine = Engine::load({.model = model, .num_threads = 2, .max_model_len = 256});
  ASSERT_TRUE(engine.has_value()) << engine.error().message();
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 200; ++i) {
    ids.push_back(i);
  }
  ASSERT_TRUE(engine->score({.ids = ids}).has_value());
  const Resident after = resident();

  const EngineInfo& info = engine->info();
  const std::int64_t anonymous = after.anonymous - before.anonymous;
  const std::int64_t mapped = after.mapped - before.mapped;
  std::printf(
      "file %lld KiB, resident of it %lld; owned %lld + cache %lld + workspace %lld KiB, "
      "anonymous %lld\n",
      static_cast<long long>(info.mapped_bytes / 1024), static_cast<long long>(mapped / 1024),
      static_cast<long long>(info.owned_weight_bytes / 1024),
      static_cast<long long>(info.kv_bytes / 1024),
      static_cast<long long>(info.workspace_bytes / 1024),
      static_cast<long long>(anonymous / 1024));
  ASSERT_GT(info.mapped_bytes, 4 * kSlack) << "too small a file to tell";
  EXPECT_LE(anonymous, info.owned_weight_bytes + info.kv_bytes + info.workspace_bytes + kSlack);
  EXPECT_LE(mapped, info.mapped_bytes + kSlack);
  EXPECT_GE(mapped, info.mapped_bytes / 2) << "the weights were not read from the mapping";
}

}  // namespace
}  // namespace nibble
