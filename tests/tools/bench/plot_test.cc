#include "bench/plot.h"

#include <gtest/gtest.h>

namespace tutti::bench::plot_test {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

Row row(uint64_t bytes, double timeUs, bool isInPlace, const char* type = "float") {
  Row r;
  r.op = "all_reduce";
  r.type = type;
  r.redOp = "sum";
  r.ranks = 4;
  r.bytes = bytes;
  r.timeUs = timeUs;
  r.busbwGBps = static_cast<double>(bytes) / timeUs / 1000;
  r.isInPlace = isInPlace;
  return r;
}

TEST(Plot, OneLineASeriesInBothPanels) {
  const std::string svg = drawSvg({row(8, 1, false), row(16, 2, false), row(8, 1, true), row(16, 2, true), row(8, 3, false, "half")});
  EXPECT_EQ(count(svg, "<polyline"), 6u);
  EXPECT_EQ(count(svg, "<circle"), 10u);
  EXPECT_EQ(count(svg, ">float sum, in place</text>"), 1u);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(Plot, ComparedLibrariesAreTwoLines) {
  std::vector<Row> rows = {row(8, 1, false), row(8, 2, false)};
  rows[0].library = "tutti";
  rows[1].library = "MPI";
  const std::string svg = drawSvg(rows);
  EXPECT_EQ(count(svg, "<polyline"), 4u);
  EXPECT_EQ(count(svg, ">MPI, float sum, out of place</text>"), 1u);
}

TEST(Plot, WhatALogarithmCannotShowIsLeftOut) {
  Row empty = row(0, 1, false);
  empty.busbwGBps = 0;
  EXPECT_EQ(count(drawSvg({empty}), "<circle"), 0u);
  EXPECT_EQ(count(drawSvg({}), "nan"), 0u);
}

TEST(Plot, PointsStayInsideTheirPanel) {
  const std::string svg = drawSvg({row(8, 0.001, false), row(uint64_t{1} << 40, 1e9, false)});
  EXPECT_EQ(count(svg, "cy=\"-"), 0u);
  EXPECT_EQ(count(svg, "inf"), 0u);
}

}  // namespace
}  // namespace tutti::bench::plot_test
