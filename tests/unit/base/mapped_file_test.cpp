#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace nibble {
namespace {

std::string write_file(const std::string& name, const std::string& contents) {
  std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

TEST(MappedFile, ShowsTheBytes) {
  const std::string path = write_file("mapped", "nibble");
  const Result<MappedFile> file = MappedFile::open(path);
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()),
            "nibble");
}

TEST(MappedFile, EmptyFileHasNoBytes) {
  const Result<MappedFile> file = MappedFile::open(write_file("empty", ""));
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFile, MissingFileAndDirectoryAreRefusedByName) {
  EXPECT_EQ(MappedFile::open("/nonexistent/x").error().code(), Code::kNotFound);
  const Status status = MappedFile::open(testing::TempDir()).error();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_NE(status.message().find(testing::TempDir()), std::string::npos);
}

TEST(MappedFile, DroppedBytesReadBackTheSame) {
  const std::string contents(1 << 20, 'n');
  const Result<MappedFile> file = MappedFile::open(write_file("big", contents));
  ASSERT_TRUE(file.has_value());
  file->drop(file->bytes().data() + 5, contents.size() - 10);
  EXPECT_EQ(file->bytes()[contents.size() / 2], std::byte{'n'});
}

}  // namespace
}  // namespace nibble
