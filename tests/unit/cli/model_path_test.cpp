#include "cli/model_path.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace nibble::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ModelPath : public ::testing::Test {
 protected:
  ModelPath() {
    std::string pattern = fs::temp_directory_path() / "nibble_path_XXXXXX";
    root_ = mkdtemp(pattern.data());
    places_.executable = root_ / "prefix/bin/nibble";
    places_.hub_cache = root_ / "hub";
  }
  ~ModelPath() override { fs::remove_all(root_); }

  std::string make(const std::string& folder) const {
    fs::create_directories(root_ / folder);
    return root_ / folder;
  }
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }

  fs::path root_;
  ModelPlaces places_;
};

TEST_F(ModelPath, AFolderIsItself) {
  const std::string folder = make("some/model");
  EXPECT_EQ(*find_model(folder, places_), folder);
}

TEST_F(ModelPath, TheDemoVariableComesFirst) {
  make("prefix/share/nibble/models/demo");
  places_.demo = make("mine");
  EXPECT_EQ(*find_model("", places_), places_.demo);
}

TEST_F(ModelPath, ADemoVariableThatNamesNothingIsNoReasonToLookElsewhere) {
  make("prefix/share/nibble/models/demo");
  places_.demo = root_ / "absent";
  const auto found = find_model("", places_);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), Code::kNotFound);
  EXPECT_THAT(found.error().message(), HasSubstr("NIBBLE_DEMO"));
}

TEST_F(ModelPath, TheInstalledDemoComesBeforeThatOfTheSourceTree) {
  const std::string built = make("models/demo");
  places_.executable = root_ / "build/cpu/nibble";
  EXPECT_EQ(*find_model("", places_), built);
  const std::string installed = make("build/share/nibble/models/demo");
  EXPECT_EQ(*find_model("", places_), installed);
}

TEST_F(ModelPath, WithoutADemoSaysWhereItLooked) {
  const auto found = find_model("", places_);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message(), HasSubstr("prefix/share/nibble/models/demo"));
  EXPECT_THAT(found.error().message(), HasSubstr("NIBBLE_DEMO"));
}

TEST_F(ModelPath, TheMainRevisionOfTheCacheIsTaken) {
  make("hub/models--openai--gpt-oss-20b/snapshots/aaa");
  const std::string main = make("hub/models--openai--gpt-oss-20b/snapshots/bbb");
  write("hub/models--openai--gpt-oss-20b/refs/main", "bbb");
  EXPECT_EQ(*find_model("openai/gpt-oss-20b", places_), main);
  EXPECT_EQ(*find_model("gpt-oss-20b", places_), main);
}

TEST_F(ModelPath, ASingleSnapshotNeedsNoReference) {
  const std::string only = make("hub/models--a--b/snapshots/aaa");
  EXPECT_EQ(*find_model("a/b", places_), only);
  make("hub/models--a--b/snapshots/bbb");
  EXPECT_THAT(find_model("a/b", places_).error().message(), HasSubstr("found 2 snapshots"));
}

TEST_F(ModelPath, ANameThatTwoOrganisationsHaveIsRefused) {
  make("hub/models--a--m/snapshots/1");
  make("hub/models--b--m/snapshots/1");
  EXPECT_THAT(find_model("m", places_).error().message(), HasSubstr("ambiguous"));
}

TEST_F(ModelPath, AFileIsNoModel) {
  write("m/model.safetensors", "x");
  const auto found = find_model(root_ / "m/model.safetensors", places_);
  EXPECT_THAT(found.error().message(), HasSubstr("want a model folder, found a file"));
}

TEST_F(ModelPath, APromptInThePlaceOfTheModelIsRecognised) {
  const auto found = find_model("Tell me a story.", places_);
  EXPECT_THAT(found.error().message(), HasSubstr("a prompt goes after -p"));
}

TEST(ModelPlaces, PreferTheMostSpecificVariable) {
  for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) {
    unsetenv(name);
  }
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(model_places("").hub_cache, "/home/me/.cache/huggingface/hub");
  setenv("XDG_CACHE_HOME", "/xdg", 1);
  EXPECT_EQ(model_places("").hub_cache, "/xdg/huggingface/hub");
  setenv("HF_HOME", "/hf", 1);
  EXPECT_EQ(model_places("").hub_cache, "/hf/hub");
  setenv("HF_HUB_CACHE", "/cache", 1);
  EXPECT_EQ(model_places("").hub_cache, "/cache");
}

}  // namespace
}  // namespace nibble::cli
