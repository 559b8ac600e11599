// Runs a fuzz target without a fuzzer: every file of the folders given, then seeded changes of
// them, so that each run of the tests looks a little beyond the corpus and yet always does the
// same.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

// NOLINTNEXTLINE(readability-identifier-naming): the fuzzer calls it by this name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes);

namespace {

using Input = std::vector<std::uint8_t>;

constexpr int kNumChanged = 2000;
constexpr std::size_t kMaxChangedBytes = 4096;

std::vector<Input> read_corpus(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());  // the order of a folder differs between machines
  std::vector<Input> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

void change(std::mt19937& random, Input& input) {
  const auto at = static_cast<std::ptrdiff_t>(random() % (input.size() + 1));
  const auto byte = static_cast<std::uint8_t>(random());
  const auto kind = random() % 4;
  if (kind == 0 || at == static_cast<std::ptrdiff_t>(input.size())) {
    input.insert(input.begin() + at, byte);
  } else if (kind == 1) {
    input.erase(input.begin() + at);
  } else if (kind == 2) {
    input[static_cast<std::size_t>(at)] = byte;
  } else {
    input.resize(static_cast<std::size_t>(at));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Input> inputs;
  for (int i = 1; i < argc; ++i) {
    for (Input& input : read_corpus(argv[i])) {
      inputs.push_back(std::move(input));
    }
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "no inputs: want folders with at least one file\n");
    return 2;
  }
  for (const Input& input : inputs) {
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::mt19937 random(1);
  for (int i = 0; i < kNumChanged; ++i) {
    Input input = inputs[random() % inputs.size()];
    input.resize(std::min(input.size(), kMaxChangedBytes));
    for (auto n = 1 + random() % 5; n > 0; --n) {
      change(random, input);
    }
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%zu inputs and %d changed ones\n", inputs.size(), kNumChanged);
  return 0;
}
