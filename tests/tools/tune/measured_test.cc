#include "tune/measured.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "tune/fit.h"

namespace tutti::tool::measured_test {
namespace {

std::string fileText() {
  std::ifstream file(TUTTI_SOURCE_DIR "/bench/measured/nccl-h200x4.json");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// What the model of links must reach: fitted to every other row of what NCCL was measured with, it is right on the rows between.
TEST(Measured, AllReduceIsWithinAQuarterOnTheRowsThatWereNotFitted) {
  const auto measured = parseMeasured("file", fileText());
  ASSERT_TRUE(measured) << measured.error().text();
  EXPECT_EQ(measured->samples.size(), 18u);
  for (const size_t first : {size_t{0}, size_t{1}}) {
    tune::LinkConstants constants = tune::linkConstants();
    const auto errors = errorsOnOtherRows(*measured, first, constants);
    size_t counted = 0;
    for (const FitError& one : errors) {
      ASSERT_TRUE(std::isfinite(one.estimateUs));
      if (one.sample.collective != Collective::AllReduce || one.sample.bytes < 16384) continue;
      ++counted;
      EXPECT_LE(std::abs(one.relative()), 0.25) << one.sample.bytes << ": " << one.estimateUs << " us, measured " << one.sample.us;
    }
    EXPECT_EQ(counted, 4u);
  }
}

// The error is the model's and not the file's: a table that no such model can follow is far off.
TEST(Measured, ATableThatMakesNoSenseIsFarOff) {
  auto measured = parseMeasured("file", fileText());
  ASSERT_TRUE(measured);
  for (size_t i = 0; i < measured->samples.size(); ++i) measured->samples[i].us *= i % 2 == 0 ? 1 : 3;
  tune::LinkConstants constants = tune::linkConstants();
  double worst = 0;
  for (const FitError& one : errorsOnOtherRows(*measured, 0, constants)) worst = std::max(worst, std::abs(one.relative()));
  EXPECT_GT(worst, 0.4);
}

TEST(Measured, RefusesWhatIsNoTable) {
  const auto refusal = [](std::string_view from, std::string_view to) {
    std::string text = fileText();
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    const auto measured = parseMeasured("the.json", text);
    return measured ? std::string("accepted") : measured.error().text();
  };
  EXPECT_EQ(refusal("\"ranks\": 4", "\"ranks\": 1"), "the.json: fabric has 1 ranks on 1 nodes: expected 2 to 1024 on 1");
  EXPECT_NE(refusal("\"channels\": 24", "\"channels\": 0").find("0 channels"), std::string::npos);
  EXPECT_NE(refusal("9.1", "0").find("expected more than 0"), std::string::npos);
  EXPECT_NE(refusal("9.1", "\"quick\"").find("the.json: "), std::string::npos);
  EXPECT_NE(refusal("\"fabric\"", "\"fabrik\"").find("fabric"), std::string::npos);
  EXPECT_FALSE(parseMeasured("x", ""));
  EXPECT_FALSE(parseMeasured("x", "[1]"));
}

TEST(Fit, FindsConstantsThatAreFarAway) {
  double start = 1;
  double slope = 1;
  const auto estimate = [&](double x) { return start + slope * x; };
  double* const values[] = {&start, &slope};
  const double loss = fit(values, [&] {
    double sum = 0;
    for (const double x : {1.0, 10.0, 100.0, 1000.0}) sum += squaredLogError(estimate(x), 40 + 0.3 * x);
    return sum;
  });
  EXPECT_LT(loss, 1e-3);
  EXPECT_NEAR(start, 40, 1);
  EXPECT_NEAR(slope, 0.3, 0.01);
}

}  // namespace
}  // namespace tutti::tool::measured_test
