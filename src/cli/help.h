// How help looks: two aligned columns, nothing but names, values and one sentence each.
#pragma once

#include <memory>

namespace CLI {
class FormatterBase;
}

namespace nibble::cli {

extern const char* const kProgramFooter;
extern const char* const kVerbFooter;

std::shared_ptr<CLI::FormatterBase> make_help_formatter();

}  // namespace nibble::cli
