#include "model/sample_block.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/arena.h"

namespace nibble::model {
namespace {

struct Parts {
  kernels::SampleRow* rows = nullptr;
  kernels::TokenCount* counts = nullptr;
  kernels::LogitBias* logit_bias = nullptr;
};

Parts lay_out(std::size_t rows, std::size_t counts, std::size_t logit_bias, Arena& arena) {
  Parts out;
  out.rows = arena.take<kernels::SampleRow>(static_cast<std::int64_t>(rows));
  out.counts = arena.take<kernels::TokenCount>(static_cast<std::int64_t>(counts));
  out.logit_bias = arena.take<kernels::LogitBias>(static_cast<std::int64_t>(logit_bias));
  return out;
}

}  // namespace

std::int64_t SampleBlock::bytes(std::int32_t max_logit_rows) {
  static_assert(sizeof(kernels::TokenCount) == sizeof(kernels::LogitBias));
  Arena size;
  (void)lay_out(static_cast<std::size_t>(max_logit_rows), kMostSampleEntries, 0, size);
  return size.bytes() + Arena::kAlignment;  // two parts round up
}

Result<SampleBlock> SampleBlock::fill(const SampleBatch& batch, std::int32_t num_logit_rows,
                                      std::byte* host, const std::byte* seen) {
  if (batch.rows.size() != static_cast<std::size_t>(num_logit_rows) ||
      batch.counts.size() + batch.logit_bias.size() > kMostSampleEntries) {
    return error(Code::kInvalidArgument,
                 "sampling: want {} rows and at most {} counts and biases, found {} and {}",
                 num_logit_rows, kMostSampleEntries, batch.rows.size(),
                 batch.counts.size() + batch.logit_bias.size());
  }
  Arena arena(host);
  const Parts parts =
      lay_out(batch.rows.size(), batch.counts.size(), batch.logit_bias.size(), arena);
  std::copy(batch.rows.begin(), batch.rows.end(), parts.rows);
  std::copy(batch.counts.begin(), batch.counts.end(), parts.counts);
  std::copy(batch.logit_bias.begin(), batch.logit_bias.end(), parts.logit_bias);
  const auto at = [&](const auto* part) {
    return reinterpret_cast<decltype(part)>(seen +
                                            (reinterpret_cast<const std::byte*>(part) - host));
  };
  return SampleBlock{.rows = at(static_cast<const kernels::SampleRow*>(parts.rows)),
                     .counts = at(static_cast<const kernels::TokenCount*>(parts.counts)),
                     .logit_bias = at(static_cast<const kernels::LogitBias*>(parts.logit_bias)),
                     .used_bytes = arena.bytes()};
}

}  // namespace nibble::model
