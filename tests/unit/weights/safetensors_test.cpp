#include "weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/folder.h"
#include "support/safetensors_bytes.h"

namespace nibble::weights {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing_support::as_bytes;
using testing_support::length_prefix;
using testing_support::safetensors_bytes;

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

Result<Header> parse(const std::string& bytes) { return parse_header("x.st", as_bytes(bytes)); }

TEST(SafetensorsHeader, ReadsTensorsInOrderOfTheirData) {
  const std::string header = R"({"b":)" + tensor("F32", "[2]", "[8,16]") + R"(,"a":)" +
                             tensor("BF16", "[2,2]", "[0,8]") +
                             R"(,"__metadata__":{"format":"pt"}})";
  const Result<Header> parsed = parse(safetensors_bytes(header, std::string(16, '\0')));
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message();
  ASSERT_EQ(parsed->tensors.size(), 2U);
  EXPECT_EQ(parsed->tensors[0].name, "a");
  EXPECT_EQ(parsed->tensors[0].dtype, DType::kBF16);
  EXPECT_EQ(parsed->tensors[0].shape, (Shape{2, 2}));
  EXPECT_EQ(parsed->tensors[1].begin, 8);
  EXPECT_EQ(parsed->metadata.at("format"), "pt");
}

struct Crafted {
  const char* name;
  std::string header;
  std::size_t data_bytes;
  const char* fault;  // part of the line; nullptr: valid
};

std::ostream& operator<<(std::ostream& out, const Crafted& crafted) { return out << crafted.name; }

class CraftedHeader : public testing::TestWithParam<Crafted> {};

TEST_P(CraftedHeader, IsJudgedByItsTrueFault) {
  const Crafted& crafted = GetParam();
  const Result<Header> parsed =
      parse(safetensors_bytes(crafted.header, std::string(crafted.data_bytes, '\0')));
  if (crafted.fault == nullptr) {
    EXPECT_TRUE(parsed.has_value()) << parsed.error().message();
    return;
  }
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().code(), Code::kCorrupt);
  EXPECT_THAT(parsed.error().message(), StartsWith("x.st: "));
  EXPECT_THAT(parsed.error().message(), HasSubstr(crafted.fault));
  EXPECT_THAT(parsed.error().message(), Not(HasSubstr("\n")));
}

// One tensor "t".
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"t":)" + tensor(dtype, shape, offsets) + "}";
}
// Two U8 tensors, each with 8 elements.
std::string two(const std::string& first, const std::string& second) {
  return R"({"s":)" + tensor("U8", "[8]", first) + R"(,"t":)" + tensor("U8", "[8]", second) + "}";
}

std::string deep(std::size_t depth) { return std::string(depth, '['); }

INSTANTIATE_TEST_SUITE_P(
    Table, CraftedHeader,
    testing::Values(
        Crafted{"Good", one("F32", "[2]", "[0,8]"), 8, nullptr},
        Crafted{"NoTensors", "{}", 0, nullptr},
        Crafted{"Scalar", one("F32", "[]", "[0,4]"), 4, nullptr},
        Crafted{"ZeroSize", one("F32", "[0,7]", "[0,0]"), 0, nullptr},
        Crafted{"ZeroSizeBetween",
                R"({"a":)" + tensor("U8", "[4]", "[0,4]") + R"(,"b":)" +
                    tensor("U8", "[0]", "[4,4]") + R"(,"c":)" + tensor("U8", "[4]", "[4,8]") + "}",
                8, nullptr},
        Crafted{"TwoFloat4InAByte", one("F4", "[2]", "[0,1]"), 1, nullptr},
        Crafted{"OddFloat4", one("F4", "[3]", "[0,2]"), 2, "needs 12 bits"},
        Crafted{"ZeroSizeInsideAnother",
                R"({"a":)" + tensor("U8", "[8]", "[0,8]") + R"(,"b":)" +
                    tensor("U8", "[0]", "[4,4]") + "}",
                8, "overlaps"},
        Crafted{"DuplicateTensor",
                R"({"t":)" + tensor("U8", "[4]", "[0,4]") + R"(,"t":)" +
                    tensor("U8", "[4]", "[4,8]") + "}",
                8, "duplicate key \"t\""},
        Crafted{"DuplicateField",
                R"({"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
                "duplicate key \"dtype\""},
        Crafted{"DuplicateMetadata", R"({"__metadata__":{"a":"1","a":"2"}})", 0, "duplicate key"},
        Crafted{"SameBytes", two("[0,8]", "[0,8]"), 8, "overlaps"},
        Crafted{"PartlyOverlapping", two("[0,8]", "[4,12]"), 12, "overlaps"},
        Crafted{"Hole", two("[0,8]", "[12,20]"), 20, "hole"},
        Crafted{"HoleAtTheStart", one("U8", "[8]", "[4,12]"), 12, "hole"},
        Crafted{"TrailingBytes", one("U8", "[8]", "[0,8]"), 12, "want 8 bytes of data"},
        Crafted{"CutShort", one("U8", "[8]", "[0,8]"), 7, "cut short: tensor t"},
        Crafted{"BeginPastEnd", one("U8", "[8]", "[8,0]"), 8, "begin <= end"},
        Crafted{"TooFewBytes", one("F32", "[1000,1000]", "[0,4]"), 4, "needs 32000000 bits"},
        Crafted{"UnknownDType", one("XYZ", "[1]", "[0,4]"), 4, "unknown dtype \"XYZ\""},
        Crafted{"ProductPast64Bits", one("U8", "[4294967296,4294967296]", "[0,0]"), 0, "63 bits"},
        Crafted{"BitsPast63", one("F64", "[576460752303423488]", "[0,0]"), 0, "63 bits"},
        Crafted{"ProductWrapsToZero", one("U8", "[9223372036854775807,2,0]", "[0,0]"), 0,
                "63 bits"},
        Crafted{"NegativeDim", one("U8", "[-8]", "[0,8]"), 8, "found -8"},
        Crafted{"FloatDim", one("U8", "[8.0]", "[0,8]"), 8, "found 8.0"},
        Crafted{"NanDim", one("U8", "[NaN]", "[0,8]"), 8, "not valid JSON"},
        Crafted{"TextDim", one("U8", R"(["8"])", "[0,8]"), 8, "found \"8\""},
        Crafted{"HugeDim", one("U8", "[18446744073709551615]", "[0,8]"), 8,
                "found 18446744073709551615"},
        Crafted{"DimPast64Bits", one("U8", "[99999999999999999999]", "[0,8]"), 8,
                "found 99999999999999999999"},
        Crafted{"ManyDims", one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "at most 8"},
        Crafted{"HugeOffset", one("U8", "[8]", "[0,18446744073709551615]"), 8, "data_offsets"},
        Crafted{"LargestSignedOffset",
                one("U8", "[8]", "[9223372036854775800,9223372036854775807]"), 8, "needs 64 bits"},
        Crafted{"OneOffset", one("U8", "[8]", "[0]"), 8, "want 2 data_offsets"},
        Crafted{"ThreeOffsets", one("U8", "[8]", "[0,8,8]"), 8, "want 2 data_offsets"},
        Crafted{"NoShape", R"({"t":{"dtype":"U8","data_offsets":[0,8]}})", 8, "no shape"},
        Crafted{"NoDType", R"({"t":{"shape":[8],"data_offsets":[0,8]}})", 8, "no dtype"},
        Crafted{"NoOffsets", R"({"t":{"shape":[8],"dtype":"U8"}})", 8, "no data_offsets"},
        Crafted{"UnknownField", R"({"t":{"shape":[8],"dtype":"U8","data_offsets":[0,8],"x":1}})", 8,
                "unknown field \"x\""},
        Crafted{"TensorIsANumber", R"({"t":3})", 0, "want an object"},
        Crafted{"TensorIsAList", R"({"t":[]})", 0, "want an object"},
        Crafted{"NestedObject", R"({"t":{"dtype":{}}})", 0, "found an object"},
        Crafted{"NestedList", R"({"t":{"shape":[[1]]}})", 0, "found a list"},
        Crafted{"MetadataIsANumber", R"({"__metadata__":3})", 0, "want an object"},
        Crafted{"MetadataHoldsANumber", R"({"__metadata__":{"a":3}})", 0, "want a string"},
        Crafted{"MetadataHoldsAList",
                R"({"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                R"("__metadata__":{"a":[3]}})",
                0, "want a string"},
        Crafted{"List", "[]", 0, "does not begin with '{'"},
        Crafted{"DepthBomb", R"({"t":)" + deep(100000), 0, "found a list"},
        Crafted{"NotJson", "{\"t\":", 0, "not valid JSON"},
        Crafted{"TextAfterJson", "{} x", 0, "not valid JSON"},
        Crafted{"ControlCharacterInName", R"({"a\nb":3})", 0, "a\\x0ab"},
        Crafted{"MisalignedElements",
                R"({"s":)" + tensor("U8", "[1]", "[0,1]") + R"(,"t":)" +
                    tensor("BF16", "[1]", "[1,3]") + "}",
                3, "want a multiple of 2 for bf16"}),
    [](const testing::TestParamInfo<Crafted>& row) { return row.param.name; });

TEST(SafetensorsPrefix, ShorterThanEightBytesIsRefused) {
  for (std::size_t bytes = 0; bytes < 8; ++bytes) {
    EXPECT_THAT(parse(std::string(bytes, '\0')).error().message(),
                HasSubstr("want at least 8 bytes, found " + std::to_string(bytes)));
  }
}

TEST(SafetensorsPrefix, LengthsPastTheFileAreRefused) {
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{100'000'001}, std::uint64_t{1} << 32,
        std::uint64_t{1} << 62, std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{7}}) {
    const Result<Header> parsed = parse(length_prefix(length) + "{}");
    ASSERT_FALSE(parsed.has_value()) << length;
    EXPECT_EQ(parsed.error().code(), Code::kCorrupt);
    EXPECT_THAT(parsed.error().message(), HasSubstr(std::to_string(length)));
  }
  EXPECT_TRUE(parse(length_prefix(2) + "{}").has_value());
  EXPECT_FALSE(parse(length_prefix(0) + "{}").has_value());
}

TEST(SafetensorsFile, ViewsTheMappedBytes) {
  const testing_support::TemporaryFolder folder;
  testing_support::write_file(folder / "x.safetensors",
                              safetensors_bytes(two("[0,8]", "[8,16]"), "abcdefghijklmnop"));
  const Result<SafetensorsFile> file = SafetensorsFile::open(folder / "x.safetensors");
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const TensorView view = file->view(file->header().tensors[1]);
  EXPECT_EQ(std::string(static_cast<const char*>(view.data), 8), "ijklmnop");
  EXPECT_EQ(view.bytes(), 8);
}

}  // namespace
}  // namespace nibble::weights
