#include "kernels/random/random_fill.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/common/random_bits.h"

namespace nibble::kernels {
#define NIBBLE_INSTANCE(row) extern const Instance<RandomFillArgs> row;
#include "kernels/random_fill_instances.inc"
#undef NIBBLE_INSTANCE

namespace {

constexpr std::int64_t kWordBytes = 8;
// Words that a worker takes at a time: 1 MiB.
constexpr std::int64_t kGrain = std::int64_t{1} << 17U;

Status validate(const RandomFillArgs& args) {
  const bool has_table = args.form != RandomForm::kBf16 || args.quantiles != nullptr;
  if (args.bytes < 0 || (args.bytes > 0 && args.out == nullptr) || !has_table) {
    return error(Code::kInvalidArgument,
                 "random_fill: want memory for the bytes and a table for bf16, got {} bytes{}{}",
                 args.bytes, args.out == nullptr ? ", no memory" : "",
                 has_table ? "" : ", no table");
  }
  return {};
}

std::uint64_t four_values(std::uint64_t word, const formats::Bf16* quantiles) {
  std::array<formats::Bf16, 4> four;
  for (std::size_t lane = 0; lane < four.size(); ++lane) {
    four[lane] = quantiles[word >> (16 * lane) & (kRandomQuantiles - 1)];
  }
  return std::bit_cast<std::uint64_t>(four);
}

std::uint64_t word_of(const RandomFillArgs& args, std::int64_t index) {
  const std::uint64_t word =
      random_word(args.key, args.first_word + static_cast<std::uint64_t>(index));
  switch (args.form) {
    case RandomForm::kBytes: return word;
    case RandomForm::kBf16: return four_values(word, args.quantiles);
    case RandomForm::kScales: return random_scales(word, args.middle_scale);
  }
  return 0;
}

std::int64_t num_words(const RandomFillArgs& args) {
  return (args.bytes + kWordBytes - 1) / kWordBytes;
}

void fill(const RandomFillArgs& args, std::int64_t begin, std::int64_t end) {
  auto* out = static_cast<std::byte*>(args.out);
  for (std::int64_t index = begin; index < end; ++index) {
    const std::uint64_t word = word_of(args, index);
    const std::int64_t at = index * kWordBytes;
    std::memcpy(out + at, &word, static_cast<std::size_t>(std::min(kWordBytes, args.bytes - at)));
  }
}

Status random_fill_cpu(const RandomFillArgs& args, const Exec& exec) {
  exec.pool->run_split(num_words(args), kGrain,
                       [&](int /*worker*/, Range range) { fill(args, range.begin, range.end); });
  return {};
}

const Instance<RandomFillArgs> kInstances[] = {
    {.info = {.name = "random_fill_ref"},
     .accepts = &accepts_all<RandomFillArgs>,
     .run = &run_reference<&random_fill_ref, RandomFillArgs>},
    {.info = {.name = "random_fill_cpu", .backend = Backend::kCpu},
     .accepts = &accepts_all<RandomFillArgs>,
     .run = &random_fill_cpu},
#define NIBBLE_INSTANCE(row) row,
#include "kernels/random_fill_instances.inc"
#undef NIBBLE_INSTANCE
};

}  // namespace

std::span<const Instance<RandomFillArgs>> random_fill_instances() { return kInstances; }

Status random_fill_ref(const RandomFillArgs& args) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  fill(args, 0, num_words(args));
  return {};
}

Status random_fill(const RandomFillArgs& args, const Exec& exec) {
  NIBBLE_RETURN_IF_ERROR(validate(args));
  return run_best("random_fill", random_fill_instances(), args, exec);
}

}  // namespace nibble::kernels
