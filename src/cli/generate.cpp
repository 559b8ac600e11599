// Hidden from the help: what the build installs beside the program.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command_tree.h"
#include "cli/completion.h"
#include "cli/flags.h"
#include "cli/man_page.h"
#include "cli/verbs.h"

#ifndef NIBBLE_VERSION
#error "the build defines NIBBLE_VERSION"
#endif

namespace nibble::cli {

void add_generate(CLI::App& app, Invocation& invocation) {
  CLI::App& verb = add_verb(app, {"generate", "completions and the manual, on standard output",
                                  "  nibble generate --what man | man -l -\n"
                                  "  source <(nibble generate --what bash)\n"});
  verb.group("");
  auto what = std::make_shared<std::string>();
  add_choice(verb, {"--what", "KIND", "bash, zsh, fish or man"}, {"bash", "zsh", "fish", "man"},
             *what)
      ->required();
  set_action(verb, invocation, [&app, &invocation, what] {
    const std::vector<VerbEntry> verbs = command_tree(app);
    invocation.host.out.write(*what == "bash"   ? bash_completion(verbs)
                              : *what == "zsh"  ? zsh_completion(verbs)
                              : *what == "fish" ? fish_completion(verbs)
                                                : man_page(verbs, NIBBLE_VERSION));
    return done();
  });
}

}  // namespace nibble::cli
