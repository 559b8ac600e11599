// Several answers to one prompt.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "nibble/request.h"

namespace nibble {

/// Requests of `count` answers to one: equal but for their seeds, which follow from that of
/// `request` when it has one. The first keeps it, so a single choice is the request itself. Run
/// together, they compute the prompt once.
std::vector<Request> choices_of(const Request& request, std::size_t count);

/// Indices of the `count` likeliest answers: the largest `cumulative_logprob` first, the earlier
/// first among equals. All answers need log-probabilities (`Request::top_logprobs` of at least 0).
std::vector<std::size_t> best_choices(std::span<const Response> answers, std::size_t count);

}  // namespace nibble
