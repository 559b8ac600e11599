// Token sequences of a golden file with what the reference implementation computed for them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nibble::testing_support {

// Fields that the file does not give are empty.
struct GoldenSequence {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> positions;
  std::vector<float> logits;           // [positions, vocab]
  std::vector<std::int32_t> argmax;    // at every position
  std::vector<float> logprob_of_next;  // of ids[i + 1] after ids[0..i]
};

// By name: "short", "window", "long", or the number of a dialogue. Fails the test and returns
// nothing when the file cannot be read.
std::map<std::string, GoldenSequence> read_golden(const std::string& path);

}  // namespace nibble::testing_support
