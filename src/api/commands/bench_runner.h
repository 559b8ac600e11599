// Runs bench tests on a loaded model, against the clock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "api/commands/bench.h"
#include "api/model_source.h"
#include "model/model.h"
#include "nibble/status.h"

namespace nibble::commands {

class BenchRunner {
 public:
  virtual ~BenchRunner() = default;
  virtual int num_threads() const = 0;
  virtual std::string decode_path() const = 0;  // of the model
  // Once for each test, before its runs; not timed.
  virtual Status prepare(const BenchTest& test) = 0;
  // Nanoseconds of one repetition.
  virtual Result<std::int64_t> run(const BenchTest& test) = 0;
};

// One for all tests with the same number of threads. kExhausted: the cache does not fit.
Result<std::unique_ptr<BenchRunner>> make_step_runner(const BenchOptions& options,
                                                      model::KernelChoice kernels,
                                                      std::span<const BenchTest> tests,
                                                      const ModelSource& source);
// Through the engine, with tokenizer (if the checkpoint has one) and sampling. Tests at depth 0.
Result<std::unique_ptr<BenchRunner>> make_full_runner(const BenchOptions& options,
                                                      model::KernelChoice kernels,
                                                      std::int32_t num_threads,
                                                      const ModelSource& source);

}  // namespace nibble::commands
