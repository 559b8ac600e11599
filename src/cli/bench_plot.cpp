#include "cli/bench_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

namespace nibble::cli {
namespace {

using commands::BenchRow;
using commands::BenchTest;

constexpr double kPanelWidth = 510.0;
constexpr double kPanelHeight = 300.0;
constexpr double kLeft = 64.0;
constexpr double kTop = 34.0;
constexpr double kPlotWidth = 280.0;
constexpr double kPlotHeight = 210.0;
constexpr int kNumColours = 6;

// Mid-tones, legible on white and on black; text and axes follow the page.
constexpr const char* kStyle =
    "<style>\n"
    "text{font:12px sans-serif;fill:#333}.axis{stroke:#333;fill:none}"
    ".grid{stroke:#8884;fill:none}polyline{fill:none;stroke-width:2}\n"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#ddd}}\n"
    ".c0{stroke:#1f87d6}.c1{stroke:#e0702a}.c2{stroke:#2ca05a}.c3{stroke:#b44fc4}"
    ".c4{stroke:#c9a227}.c5{stroke:#d6455d}\n"
    "circle{fill:none;stroke-width:2}\n"
    "</style>\n";

enum class Kind { kPrompt, kGeneration, kBoth };

Kind kind_of(const BenchTest& test) {
  if (test.n_gen == 0) {
    return Kind::kPrompt;
  }
  return test.n_prompt == 0 ? Kind::kGeneration : Kind::kBoth;
}

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kPrompt: return "prompt";
    case Kind::kGeneration: return "generation";
    case Kind::kBoth: return "prompt and generation";
  }
  return "";
}

std::int32_t step_rows(const BenchTest& test) {
  const std::int32_t limit = std::min(test.n_batch, test.n_ubatch);
  const std::int64_t wanted =
      test.n_gen > 0 ? test.streams : std::int64_t{test.streams} * test.n_prompt;
  return static_cast<std::int32_t>(std::min<std::int64_t>(limit, wanted));
}

struct Point {
  double x = 0.0;
  double y = 0.0;
};
struct Panel {
  std::string title;
  std::string x_label;
  std::map<std::string, std::vector<Point>> series;
};

std::string without_depth(BenchTest test) {
  test.n_depth = 0;
  return commands::test_name(test);
}

Panel depth_panel(Kind kind, const std::vector<BenchLine>& lines) {
  Panel panel{fmt::format("{}: speed by depth", kind_name(kind)), "tokens in the cache", {}};
  for (const BenchLine& line : lines) {
    const BenchTest& test = line.row.test;
    if (kind_of(test) == kind) {
      panel
          .series[fmt::format("{}, {} rows, {} thr.", without_depth(test), step_rows(test),
                              test.n_threads)]
          .push_back({double(test.n_depth), line.row.avg_ts()});
    }
  }
  return panel;
}

Panel batch_panel(Kind kind, const std::vector<BenchLine>& lines) {
  Panel panel{fmt::format("{}: speed by batch", kind_name(kind)), "rows of a step", {}};
  for (const BenchLine& line : lines) {
    const BenchTest& test = line.row.test;
    if (kind_of(test) == kind) {
      // Prompts of different lengths are points of one curve; generations likewise.
      panel.series[fmt::format("depth {}, {} thr.", test.n_depth, test.n_threads)].push_back(
          {double(step_rows(test)), line.row.avg_ts()});
    }
  }
  return panel;
}

// The smallest of 1, 2, 5 times a power of ten that is not below `value`.
double round_up(double value) {
  if (value <= 0.0) {
    return 1.0;
  }
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= value) {
      return factor * power;
    }
  }
  return 10.0 * power;
}

std::string tick_text(double value) {
  return value >= 1000.0 ? fmt::format("{:g}k", value / 1000.0) : fmt::format("{:g}", value);
}

std::string axes(const Panel& panel, double x_end, double y_end) {
  std::string svg = fmt::format("<text x=\"{}\" y=\"18\">{}</text>\n", kLeft, panel.title);
  constexpr int kTicks = 4;
  for (int tick = 0; tick <= kTicks; ++tick) {
    const double part = static_cast<double>(tick) / kTicks;
    const double x = kLeft + part * kPlotWidth;
    const double y = kTop + (1.0 - part) * kPlotHeight;
    svg += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}h{:.1f}\"/>", kLeft, y, kPlotWidth);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kLeft - 6,
                       y + 4, tick_text(part * y_end));
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x,
                       kTop + kPlotHeight + 16, tick_text(part * x_end));
  }
  svg += fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}v{:.1f}h{:.1f}\"/>\n", kLeft, kTop,
                     kPlotHeight, kPlotWidth);
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                     kLeft + kPlotWidth / 2, kTop + kPlotHeight + 34, panel.x_label);
  return svg + fmt::format(
                   "<text x=\"14\" y=\"{0:.1f}\" text-anchor=\"middle\" transform=\"rotate("
                   "-90 14 {0:.1f})\">tokens/s</text>\n",
                   kTop + kPlotHeight / 2);
}

std::string curve(std::vector<Point> points, int colour, double x_end, double y_end) {
  std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  std::string path;
  std::string dots;
  for (const Point& point : points) {
    const double x = kLeft + point.x / x_end * kPlotWidth;
    const double y = kTop + (1.0 - point.y / y_end) * kPlotHeight;
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x, y);
    dots +=
        fmt::format("<circle class=\"c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"/>", colour, x, y);
  }
  return fmt::format("<polyline class=\"c{}\" points=\"{}\"/>{}\n", colour, path, dots);
}

std::string panel_svg(const Panel& panel) {
  double x_end = 0.0;
  double y_end = 0.0;
  for (const auto& [name, points] : panel.series) {
    for (const Point& point : points) {
      x_end = std::max(x_end, point.x);
      y_end = std::max(y_end, point.y);
    }
  }
  x_end = round_up(x_end);
  y_end = round_up(y_end);
  std::string svg = axes(panel, x_end, y_end);
  int index = 0;
  for (const auto& [name, points] : panel.series) {
    const int colour = index % kNumColours;
    const double y = kTop + 8 + 16.0 * index++;
    svg += curve(points, colour, x_end, y_end);
    svg += fmt::format("<path class=\"c{}\" stroke-width=\"2\" d=\"M{:.1f} {:.1f}h14\"/>", colour,
                       kLeft + kPlotWidth + 8, y);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"10\">{}</text>\n",
                       kLeft + kPlotWidth + 26, y + 4, name);
  }
  return svg;
}

}  // namespace

std::string bench_svg(const std::vector<BenchLine>& lines) {
  std::string body;
  int num_kinds = 0;
  for (const Kind kind : {Kind::kPrompt, Kind::kGeneration, Kind::kBoth}) {
    const Panel depth = depth_panel(kind, lines);
    if (depth.series.empty()) {
      continue;
    }
    const double y = kPanelHeight * num_kinds++;
    body += fmt::format("<g transform=\"translate(0 {})\">\n{}</g>\n", y, panel_svg(depth));
    body += fmt::format("<g transform=\"translate({} {})\">\n{}</g>\n", kPanelWidth, y,
                        panel_svg(batch_panel(kind, lines)));
  }
  const double width = 2 * kPanelWidth + 40;
  const double height = kPanelHeight * std::max(1, num_kinds);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" "
             "height=\"{}\">\n",
             width, height, width, height) +
         kStyle + body + "</svg>\n";
}

}  // namespace nibble::cli
