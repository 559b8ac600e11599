// How one of several answers to a prompt is sampled.
#pragma once

#include <cstddef>

#include "nibble/sampling.h"

namespace nibble {

// As `first`, but for the seed, which follows from that of `first` when it has one. Choice 0 is
// `first` itself.
SamplingParams choice_sampling(const SamplingParams& first, std::size_t choice);

}  // namespace nibble
