// Every way to damage a checkpoint that we could think of must be refused with kCorrupt or
// kNotFound and one line that names the file and the fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "model/config.h"
#include "model/tensor_list.h"
#include "support/folder.h"
#include "support/safetensors_bytes.h"
#include "weights/writer.h"

namespace nibble::model {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;
using testing::Not;
using testing_support::length_prefix;
using testing_support::read_file;
using testing_support::safetensors_bytes;
using testing_support::TemporaryFolder;
using testing_support::write_file;

const std::string kTiny = std::string(NIBBLE_SOURCE_DIR) + "/tests/golden/tiny";
const std::string kFirst = "model-00001-of-00003.safetensors";
const std::string kSecond = "model-00002-of-00003.safetensors";
const std::string kLast = "model-00003-of-00003.safetensors";
const std::string kIndex = "model.safetensors.index.json";

// What every verb that needs a model does before it allocates anything.
Status load(const std::string& folder) {
  NIBBLE_ASSIGN_OR_RETURN(const ModelConfig config, load_config(folder));
  NIBBLE_ASSIGN_OR_RETURN(const GenerationDefaults defaults,
                          load_generation_defaults(folder, config));
  NIBBLE_ASSIGN_OR_RETURN(const weights::Checkpoint checkpoint, weights::Checkpoint::open(folder));
  NIBBLE_ASSIGN_OR_RETURN(const ExpertFormat experts, detect_expert_format(config, checkpoint));
  const weights::MatchReport report = weights::match(tensor_list(config, experts), checkpoint);
  return report.ok() ? Status() : Status(Code::kCorrupt, report.summary(folder));
}

// `tiny` in three shards, written by our own writer.
void write_sharded_tiny(const std::string& folder) {
  const weights::Checkpoint tiny = weights::Checkpoint::open(kTiny).value();
  const auto copy = [&](const weights::TensorSpec& spec, std::int64_t offset,
                        std::span<std::byte> out) {
    const auto* bytes = static_cast<const std::byte*>(tiny.find(spec.name)->view.data);
    std::memcpy(out.data(), bytes + offset, out.size());
    return Status();
  };
  const auto specs = tensor_list(load_config(kTiny).value(), ExpertFormat::kMxfp4);
  const Status status =
      weights::write_checkpoint(folder, specs, copy, {.max_shard_bytes = 330'000}, nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  fs::copy_file(kTiny + "/config.json", folder + "/config.json");
}

struct Corruption {
  std::string name;
  std::string file;   // the file that the line must name
  std::string fault;  // part of the line
  std::function<void(const std::string& path)> apply;
};
std::ostream& operator<<(std::ostream& out, const Corruption& corruption) {
  return out << corruption.name;
}

using Apply = std::function<void(const std::string& path)>;

Apply resize(std::int64_t delta) {
  return [=](const std::string& path) {
    fs::resize_file(
        path, static_cast<std::uintmax_t>(static_cast<std::int64_t>(fs::file_size(path)) + delta));
  };
}
Apply resize_to(std::uintmax_t bytes) {
  return [=](const std::string& path) { fs::resize_file(path, bytes); };
}
Apply replace_with(const std::string& contents) {
  return [=](const std::string& path) { write_file(path, contents); };
}
Apply set_prefix(std::uint64_t length) {
  return [=](const std::string& path) {
    write_file(path, length_prefix(length) + read_file(path).substr(8));
  };
}
std::uint64_t header_length(const std::string& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  return length;
}
Apply shift_prefix(std::int64_t delta) {
  return [=](const std::string& path) {
    const std::uint64_t length = header_length(read_file(path));
    set_prefix(length + static_cast<std::uint64_t>(delta))(path);
  };
}
Apply to_header_only() {
  return [](const std::string& path) { fs::resize_file(path, 8 + header_length(read_file(path))); };
}

// Replaces the first `from` of the header and writes the file again with a right length prefix.
Apply edit_header(const std::string& from, const std::string& to) {
  return [=](const std::string& path) {
    const std::string bytes = read_file(path);
    const std::uint64_t length = header_length(bytes);
    std::string header = bytes.substr(8, length);
    const std::size_t place = header.find(from);
    ASSERT_NE(place, std::string::npos) << from << " in " << header.substr(0, 400);
    header.replace(place, from.size(), to);
    write_file(path, safetensors_bytes(header, bytes.substr(8 + length)));
  };
}
Apply edit_text(const std::string& from, const std::string& to) {
  return [=](const std::string& path) {
    std::string text = read_file(path);
    const std::size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos) << from;
    write_file(path, text.replace(place, from.size(), to));
  };
}
Apply random_header(std::uint64_t seed) {
  return [=](const std::string& path) {
    std::string bytes = read_file(path);
    std::uint64_t state = seed;
    for (std::size_t i = 8; i < 8 + header_length(bytes); ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      bytes[i] = static_cast<char>(state >> 56U);
    }
    write_file(path, bytes);
  };
}
Apply flip_header_byte(std::size_t place, unsigned char mask) {
  return [=](const std::string& path) {
    std::string bytes = read_file(path);
    bytes[8 + place] = static_cast<char>(static_cast<unsigned char>(bytes[8 + place]) ^ mask);
    write_file(path, bytes);
  };
}
void remove(const std::string& path) { fs::remove(path); }
void turn_into_folder(const std::string& path) {
  fs::remove(path);
  fs::create_directory(path);
}

class Corrupted : public testing::TestWithParam<Corruption> {};

TEST_P(Corrupted, CheckpointIsRefusedInOneLine) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_sharded_tiny(folder.path()));
  ASSERT_TRUE(load(folder.path()).ok()) << load(folder.path()).message();
  ASSERT_NO_FATAL_FAILURE(GetParam().apply(folder / GetParam().file));
  const Status status = load(folder.path());
  EXPECT_TRUE(status.code() == Code::kCorrupt || status.code() == Code::kNotFound)
      << name(status.code()) << ": " << status.message();
  EXPECT_THAT(status.message(), HasSubstr(GetParam().file));
  EXPECT_THAT(status.message(), HasSubstr(GetParam().fault));
  EXPECT_THAT(status.message(), HasSubstr(folder.path()));
  EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
}

std::string row_name(const testing::TestParamInfo<Corruption>& row) { return row.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Files, Corrupted,
    testing::Values(
        Corruption{"LastByteCut", kSecond, "cut short: tensor", resize(-1)},
        Corruption{"PageCut", kSecond, "cut short: tensor", resize(-4096)},
        Corruption{"FirstShardCut", kFirst, "cut short: tensor", resize(-1)},
        Corruption{"LastShardCut", kLast, "cut short: tensor", resize(-1)},
        Corruption{"OnlyHeaderLeft", kSecond, "cut short: tensor", to_header_only()},
        Corruption{"HalfTheHeaderLeft", kSecond, "cut short: the header", resize_to(500)},
        Corruption{"EightBytesLeft", kSecond, "cut short: the header", resize_to(8)},
        Corruption{"SevenBytesLeft", kSecond, "want at least 8 bytes, found 7", resize_to(7)},
        Corruption{"Emptied", kSecond, "found 0", resize_to(0)},
        Corruption{"ByteAppended", kSecond, "bytes of data after the header", resize(1)},
        Corruption{"Removed", kSecond, "missing", remove},
        Corruption{"FirstRemoved", kFirst, "missing", remove},
        Corruption{"TurnedIntoFolder", kSecond, "found a directory", turn_into_folder},
        Corruption{"ReplacedByText", kSecond, "header", replace_with("version https://git-lfs\n")},
        Corruption{
            "IndexRemoved", kFirst, "without an index",
            [](const std::string& path) { fs::remove(fs::path(path).parent_path() / kIndex); }},
        Corruption{"OldShardLeftBehind", "model-00004-of-00004.safetensors", "does not name it",
                   replace_with(safetensors_bytes("{}", ""))}),
    row_name);

INSTANTIATE_TEST_SUITE_P(
    Headers, Corrupted,
    testing::Values(Corruption{"LengthOneMore", kSecond, "", shift_prefix(1)},
                    Corruption{"LengthOneLess", kSecond, "", shift_prefix(-40)},
                    Corruption{"LengthZero", kSecond, "does not begin with '{'", set_prefix(0)},
                    Corruption{"LengthPastTheFile", kSecond, "the header has 90000000 bytes",
                               set_prefix(90'000'000)},
                    Corruption{"LengthPastTheLimit", kSecond, "at most", set_prefix(100'000'001)},
                    Corruption{"LengthTopBit", kSecond, "9223372036854775808",
                               set_prefix(std::uint64_t{1} << 63U)},
                    Corruption{"LengthAllOnes", kSecond, "18446744073709551615", set_prefix(~0ULL)},
                    Corruption{"RandomBytes1", kSecond, "header", random_header(1)},
                    Corruption{"RandomBytes2", kSecond, "header", random_header(2)},
                    Corruption{"RandomBytes3", kFirst, "header", random_header(3)},
                    Corruption{"RandomBytes4", kLast, "header", random_header(4)},
                    Corruption{"FirstByteFlipped", kSecond, "does not begin with '{'",
                               flip_header_byte(0, 0x20)},
                    Corruption{"QuoteFlipped", kSecond, "", flip_header_byte(1, 0x01)},
                    Corruption{"HighBitInText", kSecond, "not valid JSON",
                               flip_header_byte(40, 0x80)}),
    row_name);

// Shard 2 holds part of the layers; the first entry of each pattern is edited.
INSTANTIATE_TEST_SUITE_P(
    Fields, Corrupted,
    testing::Values(
        Corruption{"DTypeWider", kSecond, "needs", edit_header("\"BF16\"", "\"F32\"")},
        Corruption{"DTypeSameWidth", kSecond, "want bf16 or f32, found f16",
                   edit_header("\"BF16\"", "\"F16\"")},
        Corruption{"DTypeUnknown", kSecond, "unknown dtype \"Q4_K\"",
                   edit_header("\"BF16\"", "\"Q4_K\"")},
        Corruption{"BlocksAsSigned", kSecond, "want u8, found i8", edit_header("\"U8\"", "\"I8\"")},
        Corruption{"ShapeLarger", kSecond, "needs", edit_header("[96]", "[97]")},
        Corruption{"ShapeWithOneMoreAxis", kSecond, "want shape [96], found [1, 96]",
                   edit_header("[96]", "[1,96]")},
        Corruption{"ShapeSplit", kSecond, "found [48, 2]", edit_header("[96]", "[48,2]")},
        Corruption{"ShapeNegative", kSecond, "found -96", edit_header("[96]", "[-96]")},
        Corruption{"ShapeFloat", kSecond, "found 96.5", edit_header("[96]", "[96.5]")},
        Corruption{"ShapeText", kSecond, "found \"96\"", edit_header("[96]", "[\"96\"]")},
        Corruption{"ShapeHuge", kSecond, "63 bits", edit_header("[96]", "[4611686018427387904,4]")},
        Corruption{"ShapePast64Bits", kSecond, "found 18446744073709551616",
                   edit_header("[96]", "[18446744073709551616]")},
        Corruption{"NameChanged", kSecond, "places nowhere",
                   edit_header("self_attn.sinks", "self_attn.drain")},
        Corruption{"NameOfAnotherShard", kSecond, "places in",
                   edit_header("model.layers.1.post_attention_layernorm.weight",
                               "model.embed_tokens.weight")},
        Corruption{"NameTwice", kSecond, "duplicate key",
                   edit_header("model.layers.1.post_attention_layernorm.weight",
                               "model.layers.1.self_attn.o_proj.bias")},
        Corruption{"OffsetsShifted", kSecond, "needs",
                   edit_header("\"data_offsets\":[0,", "\"data_offsets\":[1,")},
        Corruption{"OffsetsSwapped", kSecond, "begin <= end",
                   edit_header("\"data_offsets\":[0,", "\"data_offsets\":[99999999,")},
        Corruption{"OffsetsNegative", kSecond, "found -1",
                   edit_header("\"data_offsets\":[0,", "\"data_offsets\":[-1,")},
        Corruption{"OffsetsHuge", kSecond, "found 18446744073709551615",
                   edit_header("\"data_offsets\":[0,", "\"data_offsets\":[18446744073709551615,")},
        Corruption{"OffsetsGone", kSecond, "unknown field", edit_header("data_offsets", "offsets")},
        Corruption{"ExtraTensor", kLast, "places nowhere",
                   edit_header("{\"__metadata__\"",
                               "{\"x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
                               "\"__metadata__\"")}),
    row_name);

INSTANTIATE_TEST_SUITE_P(
    Texts, Corrupted,
    testing::Values(Corruption{"IndexEmptyObject", kIndex, "found none", replace_with("{}")},
                    Corruption{"IndexCut", kIndex, "not valid JSON", resize(-20)},
                    Corruption{"IndexNamesAnotherShard", "model-00009-of-00003.safetensors",
                               "missing",
                               [](const std::string& path) {
                                 edit_text(kSecond, "model-00009-of-00003.safetensors")(
                                     (fs::path(path).parent_path() / kIndex).string());
                               }},
                    Corruption{"IndexTensorRenamed", kIndex, "places nowhere",
                               edit_text("lm_head.weight", "lm_tail.weight")},
                    Corruption{"IndexTensorMoved", kIndex, "places", edit_text(kFirst, kSecond)},
                    Corruption{"ConfigRemoved", "config.json", "cannot open", remove},
                    Corruption{"ConfigCut", "config.json", "not valid JSON", resize(-10)},
                    Corruption{"ConfigWithoutWidth", "config.json", "hidden_size",
                               edit_text("hidden_size", "hidden_sign")},
                    Corruption{"ConfigGenerationBroken", "generation_config.json", "not valid JSON",
                               replace_with("{\"eos_token_id\": [")},
                    // These fit no tensor: the folder is named, and the tensors.
                    Corruption{"ConfigOneLayerFewer", "", "extra model.layers.3",
                               [](const std::string& folder) {
                                 edit_text("\"num_hidden_layers\": 4",
                                           "\"num_hidden_layers\": 3")(folder + "config.json");
                                 edit_text("\"full_attention\",\n  \"sliding",
                                           "\"sliding")(folder + "config.json");
                               }},
                    Corruption{"ConfigOtherVocabulary", "model.embed_tokens.weight",
                               "want shape [513, 96]",
                               [](const std::string& path) {
                                 edit_text("\"vocab_size\": 512", "\"vocab_size\": 513")(
                                     (fs::path(path).parent_path() / "config.json").string());
                               }}),
    row_name);

TEST(SummaryOfManyFaults, HasTheCountAndTheFirstFive) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_sharded_tiny(folder.path()));
  edit_text("\"hidden_size\": 96", "\"hidden_size\": 128")(folder / "config.json");
  const std::string message = load(folder.path()).message();
  EXPECT_THAT(message, HasSubstr(" tensors do not fit the config: "));
  EXPECT_THAT(message, HasSubstr(" more (see `nibble inspect`)"));
  EXPECT_EQ(std::count(message.begin(), message.end(), ';'), 5);
}

TEST(NanScale, IsRefusedWithItsTensor) {
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_sharded_tiny(folder.path()));
  // Bytes come after wider elements, in order of the layers: the file ends with down_proj_scales.
  std::string bytes = read_file(folder / kLast);
  bytes.back() = '\xFF';
  write_file(folder / kLast, bytes);
  EXPECT_THAT(load(folder.path()).message(),
              HasSubstr("down_proj_scales in " + kLast + ": scale "));
}

}  // namespace
}  // namespace nibble::model
