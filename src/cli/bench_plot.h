// The curves of `nibble bench --plot`.
#pragma once

#include <string>
#include <vector>

#include "cli/bench_format.h"

namespace nibble::cli {

// Speed against depth on the left and against the rows of a step on the right, one line of panels
// for each kind of test (prompt, generation, both): axes from 0, a legend, points joined along
// their series. Colours suit light and dark pages.
std::string bench_svg(const std::vector<BenchLine>& lines);

}  // namespace nibble::cli
