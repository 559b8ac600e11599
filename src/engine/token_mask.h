// Which token may come next in one answer: what a grammar plugs into the sampler.
#pragma once

#include <cstdint>
#include <span>

#include "nibble/status.h"

namespace nibble::engine {

// Belongs to one request. The engine's thread calls `mask`, then `accept`, once for each generated
// token and in their order, also when the sequence was preempted and computed again in between. The
// prompt is not reported. Must not call the engine.
class TokenMask {
 public:
  virtual ~TokenMask() = default;

  // False: everything may come next and `bits` is not read. True: bit id % 32 of bits[id / 32] says
  // whether `id` may; bits past the vocabulary are ignored. `bits` has room for every id and comes
  // with unspecified values. Nothing allowed fails the request.
  virtual bool mask(std::span<std::uint32_t> bits) = 0;

  // `token` was chosen; it is part of the answer even when it is a stop id. An error fails the
  // request with this status.
  virtual Status accept(std::int32_t token) = 0;
};

}  // namespace nibble::engine
