#include "weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/folder.h"
#include "support/safetensors_bytes.h"

namespace nibble::weights {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::safetensors_bytes;
using testing_support::TemporaryFolder;
using testing_support::write_file;

// A file with one U8 tensor of 4 bytes.
std::string file_with(const std::string& name) {
  return safetensors_bytes(R"({")" + name + R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                           "data");
}

class CheckpointFolder : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& contents) {
    write_file(folder_ / name, contents);
  }
  void write_index(const std::string& weight_map) {
    write("model.safetensors.index.json",
          R"({"metadata":{"total_size":8,"deep":[[{"weight_map":1}]]},"weight_map":)" + weight_map +
              "}");
  }
  void write_two_shards() {
    write("model-00001-of-00002.safetensors", file_with("a"));
    write("model-00002-of-00002.safetensors", file_with("b"));
    write_index(kGoodMap);
  }
  Status open() const {
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder_.path());
    return checkpoint ? Status() : checkpoint.error();
  }
  void expect(Code code, const std::string& file, const std::string& fault) const {
    const Status status = open();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), AllOf(HasSubstr(folder_.path()), HasSubstr(file),
                                        HasSubstr(fault), Not(HasSubstr("\n"))));
  }

  static constexpr const char* kGoodMap =
      R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})";
  TemporaryFolder folder_;
};

TEST_F(CheckpointFolder, OneFileIsRead) {
  write("model.safetensors", file_with("a"));
  write("golden.safetensors", "not a model file, not looked at");
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message();
  ASSERT_NE(checkpoint->find("a"), nullptr);
  EXPECT_EQ(checkpoint->find("b"), nullptr);
  EXPECT_EQ(checkpoint->num_files(), 1U);
  checkpoint->drop(*checkpoint->find("a"));
  EXPECT_EQ(*static_cast<const char*>(checkpoint->find("a")->view.data), 'd');
}

TEST_F(CheckpointFolder, ShardsAreReadAsOne) {
  write_two_shards();
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message();
  EXPECT_EQ(checkpoint->num_files(), 2U);
  EXPECT_NE(checkpoint->find("a"), nullptr);
  EXPECT_NE(checkpoint->find("b")->file, checkpoint->find("a")->file);
  EXPECT_EQ(checkpoint->file_bytes(), static_cast<std::int64_t>(2 * file_with("a").size()));
}

TEST_F(CheckpointFolder, MissingFolderAndFileInItsPlaceAreToldApart) {
  EXPECT_THAT(Checkpoint::open("/nonexistent/model").error().message(),
              HasSubstr("no such folder"));
  write("file", "");
  const Status status = Checkpoint::open(folder_ / "file").error();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("found a file"));
}

TEST_F(CheckpointFolder, EmptyFolderIsRefused) {
  expect(Code::kNotFound, "model.safetensors", "no model.safetensors");
}

TEST_F(CheckpointFolder, ShardsWithoutAnIndexAreNamed) {
  write("model-00001-of-00002.safetensors", file_with("a"));
  expect(Code::kNotFound, "model-00001-of-00002.safetensors", "without an index");
}

TEST_F(CheckpointFolder, OriginalLayoutBelowIsPointedAt) {
  std::filesystem::create_directory(folder_ / "original");
  write("original/model.safetensors", file_with("a"));
  expect(Code::kNotFound, "original", "name that folder");
}

TEST_F(CheckpointFolder, DirectoryInPlaceOfAFileIsRefused) {
  std::filesystem::create_directory(folder_ / "model.safetensors");
  expect(Code::kCorrupt, "model.safetensors", "found a directory");
}

TEST_F(CheckpointFolder, AllMissingShardsAreListed) {
  write_index(R"({"a":"model-1.safetensors","b":"model-2.safetensors","c":"model-3.safetensors"})");
  write("model-2.safetensors", file_with("b"));
  expect(Code::kNotFound, "model-1.safetensors, model-3.safetensors", "2 of 3 files");
}

TEST_F(CheckpointFolder, FileBesideTheIndexIsRefused) {
  write_two_shards();
  write("model.safetensors", file_with("a"));
  expect(Code::kCorrupt, "model.safetensors", "does not name it");
}

TEST_F(CheckpointFolder, TensorInAnotherShardIsRefused) {
  write_two_shards();
  write_index(R"({"b":"model-00001-of-00002.safetensors","a":"model-00002-of-00002.safetensors"})");
  expect(Code::kCorrupt, "model-00001-of-00002.safetensors", "holds tensor a");
}

TEST_F(CheckpointFolder, TensorThatTheIndexLacksIsRefused) {
  write_two_shards();
  write("model-00002-of-00002.safetensors", file_with("c"));
  expect(Code::kCorrupt, "model-00002-of-00002.safetensors", "places nowhere");
}

TEST_F(CheckpointFolder, TensorThatTheShardLacksIsRefused) {
  write_two_shards();
  write("model-00002-of-00002.safetensors", safetensors_bytes("{}", ""));
  expect(Code::kCorrupt, "model-00002-of-00002.safetensors", "no tensor b");
}

TEST_F(CheckpointFolder, TensorInTwoShardsIsRefused) {
  write_two_shards();
  write("model-00002-of-00002.safetensors", file_with("a"));
  expect(Code::kCorrupt, "model-00002-of-00002.safetensors", "holds tensor a");
}

struct IndexCase {
  const char* text;
  const char* fault;
};
class BadIndex : public CheckpointFolder, public testing::WithParamInterface<IndexCase> {};

TEST_P(BadIndex, IsRefusedByItsName) {
  write_two_shards();
  write("model.safetensors.index.json", GetParam().text);
  expect(Code::kCorrupt, "model.safetensors.index.json", GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadIndex,
    testing::Values(IndexCase{"", "not valid JSON"}, IndexCase{"{", "not valid JSON"},
                    IndexCase{"{}", "found none"}, IndexCase{"[]", "want a JSON object"},
                    IndexCase{"3", "want a JSON object"},
                    IndexCase{R"({"weight_map":{}})", "found none"},
                    IndexCase{R"({"weight_map":[]})", "want an object"},
                    IndexCase{R"({"weight_map":3})", "want an object"},
                    IndexCase{R"({"weight_map":{"a":3}})", "want a file name, found 3"},
                    IndexCase{R"({"weight_map":{"a":{}}})", "want a file name, found an object"},
                    IndexCase{R"({"weight_map":{"a":"../model.safetensors"}})", "of this folder"},
                    IndexCase{R"({"weight_map":{"a":"/etc/passwd"}})", "of this folder"},
                    IndexCase{R"({"weight_map":{"a":"a\u0000.safetensors"}})", "of this folder"},
                    IndexCase{R"({"weight_map":{"a":"model.bin"}})", "of this folder"},
                    IndexCase{R"({"weight_map":{"a":"m.safetensors","a":"n.safetensors"}})",
                              "duplicate key \"a\""},
                    IndexCase{R"({"weight_map":{"a":"m.safetensors"},"weight_map":{}})",
                              "duplicate key \"weight_map\""}));

}  // namespace
}  // namespace nibble::weights
