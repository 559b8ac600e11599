// The steps of a model that chooses tokens on its device: enqueued one ahead of the results.
//
// While a step runs, the next one is planned with stand-ins for the tokens that are not known yet:
// -1 - logit row, the last id of its sequence, in the cache of no step. A sequence that turns out
// to have ended has a row in that next step for nothing; whatever takes over its pages is enqueued
// later and so runs later.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/sequence.h"
#include "model/model.h"

namespace nibble::engine {

// Where the next token of a sequence can be chosen.
enum class TokenSource : std::uint8_t {
  kDevice,            // needs the row's parameters alone
  kDeviceWithCounts,  // also the tokens so far: no step may run ahead of the one before it
  kHost,              // needs the logits: masks, log-probabilities, very many counts or biases
};
// `num_entries`: counts and biases of the step so far.
TokenSource token_source(const Sequence& sequence, std::size_t num_entries);

// Appends the parameters of the sequence's next token. Tokens that are not known yet count.
void add_sample_row(const Sequence& sequence, model::SampleBatch& batch);

// What one sequence gets from a started step.
struct StartedRow {
  SequenceId sequence = 0;
  std::int32_t first_logit_row = 0;
  std::int32_t num_scored = 0;  // rows for on_prompt_logits; the last may also give the token
  bool is_complete = false;     // a token follows, ids[index]
  bool is_on_host = false;      // chosen there
  bool has_stand_in = false;    // ids[index] is there and waits for the token
  std::int32_t index = 0;

  std::int32_t token_row() const { return first_logit_row + (num_scored > 0 ? num_scored - 1 : 0); }
  std::int32_t num_logit_rows() const { return num_scored > 0 ? num_scored : is_complete ? 1 : 0; }
};

struct StartedStep {
  std::vector<StartedRow> rows;  // one for each sequence of the step, in its order
  bool may_run_ahead = true;     // the next step may start before this one is finished
};

// Adds a sequence whose rows are committed to the step and to its batch.
void add_started(const Sequence& sequence, StartedStep& step, model::SampleBatch& batch);

}  // namespace nibble::engine
