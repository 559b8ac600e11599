#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/bench_format.h"
#include "cli/bench_plot.h"
#include "unit/cli/fake_host.h"

namespace nibble::cli {
namespace {

using commands::BenchRow;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

// 100 tok/s and 300 tok/s.
BenchRow measured(std::int32_t n_gen, std::int32_t n_depth) {
  BenchRow row;
  row.model = {"/models/fake", "gpt_oss mxfp4", 13'700'000'000, 20'900'000'000};
  row.test = {.n_gen = n_gen, .n_depth = n_depth, .n_threads = 2};
  row.rates = {.read = 4e9, .read_bytes = 1 << 20, .peak = 0.0, .peak_isa = ""};
  row.cpu_info = "a \"fast\" one";
  row.activation = "bf16";
  row.kv_cache = "bf16";
  row.test_time = "2026-11-30T12:00:00Z";
  row.samples_ns = {10'000'000LL * n_gen, 3'333'334LL * n_gen};
  row.bytes_per_token = 1e7;
  row.flops_per_token = 1e6;
  return row;
}

std::string write(const World& world, const std::string& name, const std::string& text) {
  std::ofstream(world.path(name)) << text;
  return world.path(name);
}

TEST(BenchVerb, PassesItsListsAndFlags) {
  World world;
  const Ran ran = world.run({"bench",   world.path(""),
                             "-p",      "512,1k",
                             "-n",      "0",
                             "-pg",     "16,4",
                             "-pg=8,2", "-d",
                             "0,4K",    "--streams",
                             "1,8",     "-b",
                             "64",      "-ub",
                             "32",      "-t",
                             "1,2",     "-r",
                             "3",       "--activation",
                             "f32",     "--no-warmup",
                             "--full",  "--decode-path",
                             "graph"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const commands::BenchOptions& options = world.engine.benched.at(0);
  EXPECT_THAT(options.n_prompt, ElementsAre(512, 1000));
  EXPECT_THAT(options.n_gen, ElementsAre(0));
  EXPECT_THAT(options.prompt_gen, ElementsAre(Pair(16, 4), Pair(8, 2)));
  EXPECT_THAT(options.n_depth, ElementsAre(0, 4096));
  EXPECT_THAT(options.streams, ElementsAre(1, 8));
  EXPECT_THAT(options.n_batch, ElementsAre(64));
  EXPECT_THAT(options.n_ubatch, ElementsAre(32));
  EXPECT_THAT(options.n_threads, ElementsAre(1, 2));
  EXPECT_EQ(options.repetitions, 3);
  EXPECT_EQ(options.activation, Activation::kF32);
  EXPECT_FALSE(options.has_warmup);
  EXPECT_EQ(options.decode_path, DecodePath::kGraph);
  EXPECT_TRUE(options.is_full);
}

TEST(BenchVerb, DefaultsAreThoseOfLlamaBench) {
  World world;
  ASSERT_EQ(world.run({"bench"}).exit_code, 0);
  const commands::BenchOptions& options = world.engine.benched.at(0);
  EXPECT_EQ(options.model, world.folder());
  EXPECT_THAT(options.n_prompt, ElementsAre(512));
  EXPECT_THAT(options.n_gen, ElementsAre(128));
  EXPECT_EQ(options.repetitions, 5);
  EXPECT_TRUE(options.has_warmup);
  EXPECT_EQ(options.decode_path, DecodePath::kAuto);
}

TEST(BenchVerb, PrintsATableOfTheColumnsThatDiffer) {
  World world;
  world.engine.bench_rows = {measured(100, 512)};
  const Ran ran = world.run({"bench", world.folder()});
  EXPECT_THAT(ran.out, HasSubstr("| backend | threads |            test |               t/s |"));
  EXPECT_THAT(ran.out, HasSubstr(" gpt_oss mxfp4 |   13.7 GB |   20.9 B | CPU     |       2 |"));
  EXPECT_THAT(ran.out, HasSubstr("|    tg100 @ d512 |   200.00 ± 141.42 |    2.00 |  50.0 % |"));
  EXPECT_THAT(ran.out, HasSubstr("| unknown |\n"));
  EXPECT_THAT(ran.out, HasSubstr("tokenising and sampling excluded"));
  EXPECT_THAT(ran.out, Not(HasSubstr("streams")));
  EXPECT_THAT(world.run({"bench", "--streams", "4"}).out, HasSubstr("| streams |"));
}

TEST(BenchVerb, NamesTheNumericsOfTheExperts) {
  World world;
  BenchRow row = measured(100, 0);
  world.engine.bench_rows = {row};
  EXPECT_THAT(world.run({"bench", world.folder()}).out, Not(HasSubstr("| act")));
  row.activation = "int8";
  world.engine.bench_rows = {row};
  const Ran table = world.run({"bench", world.folder(), "--act", "int8"});
  EXPECT_EQ(world.engine.benched.back().activation, Activation::kInt8);
  EXPECT_THAT(table.out, HasSubstr("| threads | act  |"));
  EXPECT_THAT(table.out, HasSubstr("|       2 | int8 |"));
  const Ran json = world.run({"bench", world.folder(), "--act", "int8", "-o", "json"});
  const auto rows = nlohmann::json::parse(json.out);
  EXPECT_EQ(rows[0]["activation"], "int8");
  EXPECT_EQ(rows[0]["type_k"], "bf16");
}

TEST(BenchVerb, NamesTheCache) {
  World world;
  BenchRow row = measured(100, 0);
  world.engine.bench_rows = {row};
  EXPECT_THAT(world.run({"bench", world.folder()}).out, Not(HasSubstr("type_k")));
  EXPECT_EQ(world.engine.benched.back().kv_cache, KvCacheType::kAuto);
  row.kv_cache = "fp8";
  world.engine.bench_rows = {row};
  const Ran table = world.run({"bench", world.folder(), "--kv-cache-dtype", "fp8"});
  EXPECT_EQ(world.engine.benched.back().kv_cache, KvCacheType::kFp8);
  EXPECT_THAT(table.out, HasSubstr("| threads | type_k |"));
  EXPECT_THAT(table.out, HasSubstr("|       2 | fp8    |"));
  const Ran json = world.run({"bench", world.folder(), "-o", "json"});
  EXPECT_EQ(nlohmann::json::parse(json.out)[0]["type_k"], "fp8");
  EXPECT_EQ(nlohmann::json::parse(json.out)[0]["type_v"], "fp8");
}

TEST(BenchVerb, JsonHasLlamaBenchsFieldsAndOurs) {
  World world;
  world.engine.bench_rows = {measured(100, 0), measured(100, 64)};
  const Ran ran = world.run({"bench", world.folder(), "-o", "json"});
  const auto rows = nlohmann::json::parse(ran.out);
  ASSERT_EQ(rows.size(), 2U);
  for (const char* name : {"model_filename", "model_type",      "model_size",
                           "model_n_params", "n_batch",         "n_ubatch",
                           "n_threads",      "type_k",          "type_v",
                           "n_prompt",       "n_gen",           "n_depth",
                           "test_time",      "avg_ns",          "stddev_ns",
                           "avg_ts",         "stddev_ts",       "samples_ns",
                           "samples_ts",     "cpu_info",        "backends",
                           "model",          "streams",         "gb_s",
                           "tflop_s",        "bytes_per_token", "bandwidth_fraction",
                           "peak_fraction",  "decode_path"}) {
    EXPECT_TRUE(rows[0].contains(name)) << name;
  }
  EXPECT_EQ(rows[1]["n_depth"], 64);
  EXPECT_EQ(rows[0]["samples_ns"][0], 1'000'000'000);
  EXPECT_NEAR(rows[0]["avg_ts"].get<double>(), 200.0, 1e-4);
  EXPECT_TRUE(rows[0]["peak_fraction"].is_null());
  EXPECT_EQ("/" + rows[0]["model"].get<std::string>(),
            world.folder().substr(world.folder().rfind('/')));
  EXPECT_FALSE(rows[0].contains("verdict"));
}

TEST(BenchVerb, JsonLinesAndCsvHoldTheSameRows) {
  World world;
  world.engine.bench_rows = {measured(100, 0), measured(100, 64)};
  std::istringstream lines(world.run({"bench", "-o", "jsonl"}).out);
  std::string line;
  int num_lines = 0;
  while (std::getline(lines, line)) {
    EXPECT_EQ(nlohmann::json::parse(line)["n_gen"], 100);
    ++num_lines;
  }
  EXPECT_EQ(num_lines, 2);
  const std::string csv = world.run({"bench", "-o", "csv"}).out;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  EXPECT_TRUE(csv.starts_with("\"version\",\"cpu_info\",\"backends\",")) << csv;
  EXPECT_THAT(csv, HasSubstr("\"a \"\"fast\"\" one\",\"CPU\",\"/models/fake\""));
  EXPECT_THAT(csv, Not(HasSubstr("samples")));
}

TEST(BenchVerb, EmptyJsonIsAnEmptyList) {
  World world;
  EXPECT_EQ(nlohmann::json::parse(world.run({"bench", "-o", "json"}).out).size(), 0U);
}

TEST(BenchVerb, ARegressionBeyondTheNoiseEndsWithEight) {
  World world;
  world.engine.bench_rows = {measured(100, 0), measured(100, 64)};
  auto rows = nlohmann::json::parse(world.run({"bench", "-o", "json"}).out);
  const std::string same = write(world, "same.json", rows.dump());
  const Ran equal = world.run({"bench", "--baseline", same});
  EXPECT_EQ(equal.exit_code, 0) << equal.err;
  EXPECT_THAT(equal.out, HasSubstr("200.00 ± 400.00 | same"));
  rows[1]["avg_ts"] = 601.0;
  const std::string faster = write(world, "faster.json", rows.dump());
  const Ran slow = world.run({"bench", "--baseline", faster});
  EXPECT_EQ(slow.exit_code, 8);
  EXPECT_EQ(slow.err, "nibble bench: 1 of 2 tests slower than " + faster +
                          ": tg100 @ d64: 200.00 tok/s, baseline 601.00, noise 400.00\n");
  const Ran json = world.run({"bench", "-o", "json", "--baseline", faster});
  EXPECT_EQ(json.exit_code, 8);
  EXPECT_EQ(nlohmann::json::parse(json.out)[1]["verdict"], "slower");
}

TEST(BenchVerb, RowsOfBothActivationsAreComparedEachWithItsOwn) {
  World world;
  world.engine.bench_rows = {measured(100, 0)};
  auto rows = nlohmann::json::parse(world.run({"bench", "-o", "json"}).out);
  rows.push_back(rows[0]);
  rows[0]["activation"] = "int8";
  rows[0]["avg_ts"] = 100000.0;
  const std::string both = write(world, "both.json", rows.dump());
  EXPECT_EQ(world.run({"bench", "--baseline", both}).exit_code, 0);
  world.engine.bench_rows[0].activation = "int8";
  EXPECT_EQ(world.run({"bench", "--baseline", both}).exit_code, 8);
  rows.erase(0);
  const Ran none = world.run({"bench", "--baseline", write(world, "bf16.json", rows.dump())});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("threads, backend and activations, found none"));
}

TEST(BenchVerb, ABaselineThatComparesNothingIsNoPass) {
  World world;
  world.engine.bench_rows = {measured(100, 0)};
  const Ran empty = world.run({"bench", "--baseline", write(world, "empty.json", "[]")});
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.err, HasSubstr("found none for 1 measured"));
  const Ran broken = world.run({"bench", "--baseline", write(world, "broken.json", "[{}]")});
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.err, HasSubstr("broken.json: row 0: want an object with a text 'model'"));
  EXPECT_EQ(world.run({"bench", "--baseline", world.path("none.json")}).exit_code, 1);
  EXPECT_EQ(world.engine.benched.size(), 1U);  // nothing was measured in vain
}

TEST(BenchVerb, NamesTheFieldOfABaselineThatIsWrong) {
  const auto message = [](const char* json) { return parse_baseline("f", json).error().message(); };
  EXPECT_EQ(message("{}"), "f: want a JSON list as -o json writes it, found object");
  EXPECT_EQ(message("x"), "f: want a JSON list as -o json writes it, found no JSON");
  EXPECT_EQ(message(R"([{"model": "m", "n_prompt": -1}])"),
            "f: row 0: want a whole number 'n_prompt', found -1");
  World world;
  world.engine.bench_rows = {measured(100, 0)};
  const auto rows = nlohmann::json::parse(world.run({"bench", "-o", "json"}).out);
  auto wrong = rows;
  wrong[0].erase("activation");
  EXPECT_EQ(message(wrong.dump().c_str()), "f: row 0: want a text 'activation', found none");
  wrong = rows;
  wrong[0]["full"] = 1;
  EXPECT_EQ(message(wrong.dump().c_str()), "f: row 0: want true or false in 'full', found 1");
}

TEST(BenchVerb, DrawsSpeedAgainstDepthAndBatch) {
  World world;
  world.engine.bench_rows = {measured(100, 0), measured(100, 4000)};
  const std::string path = world.path("plot.svg");
  ASSERT_EQ(world.run({"bench", "--plot", path}).exit_code, 0);
  std::stringstream svg;
  svg << std::ifstream(path).rdbuf();
  EXPECT_THAT(svg.str(), HasSubstr("generation: speed by depth"));
  EXPECT_THAT(svg.str(), HasSubstr("generation: speed by batch"));
  EXPECT_THAT(svg.str(), HasSubstr("prefers-color-scheme:dark"));
  // 200 tok/s on axes to 200 and 5000: the top, at 0 and at 4/5 of the width.
  EXPECT_THAT(svg.str(), HasSubstr("points=\"64.0,34.0 288.0,34.0\""));
  EXPECT_EQ(svg.str().find("prompt"), std::string::npos);
  EXPECT_EQ(world.run({"bench", "--plot", world.path("no/plot.svg")}).exit_code, 1);
}

TEST(BenchVerb, RefusesWrongValuesAndExplainsPresets) {
  World world;
  for (const std::vector<std::string>& line :
       std::vector<std::vector<std::string>>{{"bench", "-p", "many"},
                                             {"bench", "-p", "1,,2"},
                                             {"bench", "-pg", "8"},
                                             {"bench", "--streams", "0"},
                                             {"bench", "-o", "xml"}}) {
    EXPECT_EQ(world.run(line).exit_code, 2) << line[1];
  }
  EXPECT_THAT(world.run({"bench", "-p", "512,x"}).err,
              HasSubstr("nibble bench: --n-prompt: want a whole number"));
  const Ran preset = world.run({"bench", "gpt-oss-20b"});
  EXPECT_EQ(preset.exit_code, 3);
  EXPECT_THAT(preset.err, HasSubstr("nibble make-model --preset gpt-oss-20b DST"));
  world.engine.bench_status = Status(Code::kExhausted, "want more");
  EXPECT_EQ(world.run({"bench"}).exit_code, 4);
}

}  // namespace
}  // namespace nibble::cli
