// How help looks: two aligned columns, nothing but names, values and one sentence each.
#pragma once

#include <array>
#include <memory>
#include <string>

namespace CLI {
class FormatterBase;
}

namespace nibble::cli {

struct ExitMeaning {
  const char* codes;
  const char* meaning;
};
extern const std::array<ExitMeaning, 10> kExitMeanings;

std::string program_footer();
extern const char* const kVerbFooter;

std::shared_ptr<CLI::FormatterBase> make_help_formatter();

}  // namespace nibble::cli
