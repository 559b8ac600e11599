// The verbs. Each is one file: it adds its flags, calls the engine or api/commands, prints.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/host.h"

namespace CLI {
class App;
}

namespace nibble::cli {

// What the command line asked for, filled while it is parsed and called afterwards.
struct Invocation {
  Host& host;
  std::function<Outcome()> action;
};

// To add a verb: a file with its `add_...`, a line here, a row in the table of app.cpp.
void add_run(CLI::App& app, Invocation& invocation);
void add_score(CLI::App& app, Invocation& invocation);
void add_tokenize(CLI::App& app, Invocation& invocation);
void add_inspect(CLI::App& app, Invocation& invocation);
void add_make_model(CLI::App& app, Invocation& invocation);
void add_doctor(CLI::App& app, Invocation& invocation);
void add_plan(CLI::App& app, Invocation& invocation);
void add_quantize(CLI::App& app, Invocation& invocation);
void add_verify(CLI::App& app, Invocation& invocation);
void add_bench(CLI::App& app, Invocation& invocation);
void add_bench_serve(CLI::App& app, Invocation& invocation);
void add_generate(CLI::App& app, Invocation& invocation);
void add_batch(CLI::App& app, Invocation& invocation);
void add_serve(CLI::App& app, Invocation& invocation);

// For the `add_...` functions: begins a verb, and ends it after its flags.
struct VerbText {
  const char* name;
  const char* summary;   // one line, for the list of verbs
  const char* examples;  // lines, for its own help
};
CLI::App& add_verb(CLI::App& app, const VerbText& text);
void set_action(CLI::App& verb, Invocation& invocation, std::function<Outcome()> action);

}  // namespace nibble::cli
