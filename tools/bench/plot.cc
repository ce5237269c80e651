#include "bench/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "bench/units.h"
#include "core/format.h"

namespace tutti::bench {
namespace {

constexpr double kPanelWidth = 460;
constexpr double kPanelHeight = 340;
constexpr double kLeft = 72;      // of a panel's plotting area, from the panel's own edge
constexpr double kTop = 74;
constexpr double kBetween = 92;
constexpr double kBelow = 62;
constexpr double kLegendLine = 18;
constexpr double kLegendColumn = 250;

// Distinguishable for most colour-blind readers; the dash tells in-place from out-of-place.
constexpr std::array<std::string_view, 8> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                      "#56b4e9", "#e69f00", "#000000", "#8a6d3b"};

struct Point {
  double x;
  double y;
};

struct Series {
  std::string label;
  std::string_view colour;
  bool isDashed = false;
  std::vector<const Row*> rows;
};

/// A logarithmic axis: base^low at `start`, base^high at `end`, in pixels.
struct Axis {
  double base;
  double low;
  double high;
  double start;
  double end;

  double pixel(double value) const { return start + (std::log(value) / std::log(base) - low) / (high - low) * (end - start); }
};

using ValueOf = double (*)(const Row&);

std::string escapeXml(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&': escaped += "&amp;"; break;
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  }
  return escaped;
}

std::string text(double x, double y, std::string_view anchor, int size, std::string_view words, std::string_view extra = "") {
  return format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\"{}>{}</text>\n", x, y, anchor, size, extra,
                escapeXml(words));
}

std::string line(double x1, double y1, double x2, double y2, std::string_view colour) {
  return format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2, y2, colour);
}

/// What all rows have in common goes into the title, the rest tells the lines apart.
std::string seriesLabel(const Row& row) {
  std::string label = row.library.empty() ? row.type : row.library + ", " + row.type;
  if (row.redOp != "none") label += " " + row.redOp;
  if (row.root >= 0) label += format(" root {}", row.root);
  return label;
}

std::vector<Series> groupRows(const std::vector<Row>& rows) {
  std::vector<Series> all;
  std::vector<std::string> labels;
  for (const Row& row : rows) {
    const std::string shared = seriesLabel(row);
    if (std::find(labels.begin(), labels.end(), shared) == labels.end()) labels.push_back(shared);
    const auto colour = static_cast<size_t>(std::find(labels.begin(), labels.end(), shared) - labels.begin());
    const std::string label = shared + (row.isInPlace ? ", in place" : ", out of place");
    auto found = std::find_if(all.begin(), all.end(), [&](const Series& series) { return series.label == label; });
    if (found == all.end()) found = all.insert(found, Series{label, kColours[colour % kColours.size()], row.isInPlace, {}});
    found->rows.push_back(&row);
  }
  return all;
}

/// Whole powers of `base` around all positive values; at least one power wide.
Axis spanAxis(const std::vector<Row>& rows, ValueOf valueOf, double base, double start, double end) {
  double least = HUGE_VAL;
  double most = 0;
  for (const Row& row : rows) {
    const double value = valueOf(row);
    if (value <= 0) continue;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  if (most == 0) least = most = 1;
  // A value that is a power itself stays on its own line in spite of rounding.
  const double low = std::floor(std::log(least) / std::log(base) + 1e-9);
  const double high = std::max(std::ceil(std::log(most) / std::log(base) - 1e-9), low + 1);
  return Axis{base, low, high, start, end};
}

double bytesOf(const Row& row) { return static_cast<double>(row.bytes); }
double timeOf(const Row& row) { return row.timeUs; }
double bandwidthOf(const Row& row) { return row.busbwGBps; }

std::string drawXAxis(const Axis& x, const Axis& y) {
  std::string svg;
  const int step = std::max(1, static_cast<int>(std::ceil((x.high - x.low) / 7)));
  for (int power = static_cast<int>(x.low); power <= static_cast<int>(x.high); ++power) {
    const double value = std::pow(x.base, power);
    const double at = x.pixel(value);
    const bool isLabelled = (power - static_cast<int>(x.low)) % step == 0;
    svg += line(at, y.start, at, y.end, isLabelled ? "#d8d8d8" : "#f0f0f0");
    if (isLabelled) svg += text(at, y.start + 18, "middle", 11, formatBytes(static_cast<uint64_t>(value)));
  }
  return svg + text((x.start + x.end) / 2, y.start + 40, "middle", 12, "bytes");
}

std::string drawYAxis(const Axis& x, const Axis& y, std::string_view title) {
  std::string svg;
  const bool labelsAll = y.high - y.low <= 2;  // few decades: label 2 and 5 as well
  for (int power = static_cast<int>(y.low); power <= static_cast<int>(y.high); ++power) {
    for (int digit = 1; digit <= 9; ++digit) {
      const double value = digit * std::pow(10.0, power);
      if (digit > 1 && power == static_cast<int>(y.high)) break;
      const double at = y.pixel(value);
      svg += line(x.start, at, x.end, at, digit == 1 ? "#d8d8d8" : "#f0f0f0");
      const bool isLabelled = digit == 1 || (labelsAll && (digit == 2 || digit == 5));
      if (isLabelled) svg += text(x.start - 8, at + 4, "end", 11, format("{:.10g}", value));
    }
  }
  const double middle = (y.start + y.end) / 2;
  const double left = x.start - 54;
  return svg + text(left, middle, "middle", 12, title, format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", left, middle));
}

std::string drawSeries(const Series& series, const Axis& x, const Axis& y, ValueOf valueOf) {
  std::string path;
  std::string dots;
  for (const Row* row : series.rows) {
    const double value = valueOf(*row);
    if (row->bytes == 0 || value <= 0) continue;
    const Point at{x.pixel(bytesOf(*row)), y.pixel(value)};
    path += format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", at.x, at.y);
    dots += format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\" fill=\"{}\"><title>{}</title></circle>\n", at.x, at.y, series.colour,
                   escapeXml(format("{}: {}, {} us, {} GB/s", series.label, formatBytes(row->bytes), formatNumber(row->timeUs),
                                    formatNumber(row->busbwGBps))));
  }
  if (path.empty()) return "";
  return format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{}/>\n", path, series.colour,
                series.isDashed ? " stroke-dasharray=\"6 4\"" : "") + dots;
}

std::string drawPanel(const std::vector<Row>& rows, const std::vector<Series>& all, double left, std::string_view title,
                      std::string_view yTitle, ValueOf valueOf) {
  const Axis x = spanAxis(rows, bytesOf, 2, left, left + kPanelWidth);
  const Axis y = spanAxis(rows, valueOf, 10, kTop + kPanelHeight, kTop);
  std::string svg = text((x.start + x.end) / 2, kTop - 12, "middle", 13, title);
  svg += drawXAxis(x, y) + drawYAxis(x, y, yTitle);
  svg += format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" stroke=\"#444\"/>\n", left, kTop,
                kPanelWidth, kPanelHeight);
  for (const Series& series : all) svg += drawSeries(series, x, y, valueOf);
  return svg;
}

std::string drawLegend(const std::vector<Series>& all, double top, size_t columns) {
  std::string svg;
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t line = i / columns;
    const double x = kLeft + static_cast<double>(i % columns) * kLegendColumn;
    const double y = top + static_cast<double>(line) * kLegendLine;
    svg += format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"2\"{}/>\n", x, y - 4, x + 28,
                  y - 4, all[i].colour, all[i].isDashed ? " stroke-dasharray=\"6 4\"" : "");
    svg += text(x + 36, y, "start", 12, all[i].label);
  }
  return svg;
}

}  // namespace

std::string drawSvg(const std::vector<Row>& rows, std::string_view devices) {
  const std::vector<Series> all = groupRows(rows);
  const double width = kLeft + 2 * kPanelWidth + kBetween + 30;
  const auto columns = static_cast<size_t>((width - kLeft) / kLegendColumn);
  const double legendTop = kTop + kPanelHeight + kBelow + 12;
  const double height = legendTop + kLegendLine * std::ceil(static_cast<double>(all.size()) / static_cast<double>(columns)) + 8;
  const std::string title =
      rows.empty() ? "nothing was measured" : format("{}, {} ranks on {}", rows.front().op, rows.front().ranks, devices);

  std::string svg = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"Helvetica, Arial, sans-serif\" fill=\"#222\">\n",
      width, height);
  svg += format("<title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", escapeXml("tutti bench: " + title));
  svg += text(width / 2, 28, "middle", 17, title);
  svg += drawPanel(rows, all, kLeft, "time of one call (median)", "microseconds", timeOf);
  svg += drawPanel(rows, all, kLeft + kPanelWidth + kBetween, "bus bandwidth", "GB/s", bandwidthOf);
  return svg + drawLegend(all, legendTop, columns) + "</svg>\n";
}

}  // namespace tutti::bench
