#include "tune/platform.h"

#include <gtest/gtest.h>

#include "tune/embedded.h"

namespace tutti::tune::platform_test {
namespace {

std::string textOf(std::string_view name) {
  for (const Embedded& embedded : embeddedPlatforms())
    if (embedded.name == name) return std::string(embedded.text);
  return {};
}

/// What is said about a built-in file in which something has been replaced.
std::string refusal(std::string_view file, std::string_view from, std::string_view to) {
  std::string text = textOf(file);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  const auto platform = parsePlatform("the.json", text);
  return platform ? "accepted" : platform.error().text();
}

TEST(Platform, TheBuiltInOnesAreWhole) {
  EXPECT_EQ(embeddedPlatforms().size(), 3u);
  for (const Embedded& embedded : embeddedPlatforms()) {
    const auto platform = parsePlatform(embedded.name, embedded.text);
    ASSERT_TRUE(platform) << platform.error().text();
    EXPECT_EQ(platform->name, embedded.name);
    EXPECT_FALSE(platform->source.empty()) << embedded.name;
    EXPECT_NE(findPlatform(embedded.name), nullptr);
  }
  EXPECT_EQ(findPlatform("abacus"), nullptr);
  EXPECT_EQ(hostMachine().hopNs, 300);
  EXPECT_EQ(deviceMachine().kernels[static_cast<size_t>(exec::cuda::KernelId::Lines)].flowBytes, 8192u);
  EXPECT_EQ(linkConstants().hopUs[static_cast<size_t>(LinkKind::Net)][static_cast<size_t>(NcclAlgorithm::NvlsTree)][2], 20.9);
}

TEST(Platform, WhatIsWrittenIsReadAgain) {
  for (const Embedded& embedded : embeddedPlatforms()) {
    auto parsed = parsePlatform(embedded.name, embedded.text);
    ASSERT_TRUE(parsed);
    Platform& platform = *parsed;
    platform.key = "0123";
    platform.source = "quotes \" and \\ and \xff";
    if (platform.host) platform.host->hopNs = 1.0 / 3;
    const std::string text = toText(platform);
    const auto again = parsePlatform("again", text);
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_EQ(toText(*again), text);
    EXPECT_EQ(again->key, "0123");
    if (platform.host) {
      EXPECT_EQ(again->host->hopNs, 1.0 / 3);
    }
  }
}

/// Meetings were between copies, in other costs; rates stay what they were, and blocks had no price.
TEST(Platform, FilesOfBeforeAreRead) {
  std::string text = textOf("hopper-nvlink");
  for (const std::string_view gone : {"\"meetUs\": 10, ", "\"blockPrice\": 0.003,", "\"streamUs\": 11,"}) {
    ASSERT_NE(text.find(gone), std::string::npos) << gone;
    text.erase(text.find(gone), gone.size());
  }
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"\"startUs\": 17, \"copyUs\": 4.7", "\"startUs\": 70, \"copyUs\": 6.3"}, {"\"blockGBs\": 109", "\"blockGBs\": 118"}};
  for (const auto& [now, before] : kOthers) {
    ASSERT_NE(text.find(now), std::string::npos) << now;
    text.replace(text.find(now), now.size(), before);
  }
  const auto platform = parsePlatform("of before", text);
  ASSERT_TRUE(platform) << platform.error().text();
  const DeviceMachine& devices = *platform->devices;
  EXPECT_EQ(devices.blockPrice, kBlockPrice);
  EXPECT_EQ(devices.copies.streamUs, CopyCost().streamUs);
  EXPECT_EQ(devices.carried.blockGBs, 118);
  EXPECT_EQ(devices.carried.startUs, CarriedCost().startUs);
  EXPECT_EQ(devices.carried.copyUs, CarriedCost().copyUs);
  EXPECT_EQ(devices.carried.meetUs, CarriedCost().meetUs);
}

TEST(Platform, ErrorsNameFilePlaceAndValue) {
  EXPECT_EQ(refusal("host", "\"hopNs\": 300", "\"hopNs\": \"fast\""),
            "the.json: host.hopNs: is \"fast\": expected a number from 0 to 1e+15");
  EXPECT_EQ(refusal("host", "\"hopNs\": 300,", ""), "the.json: host.hopNs: is missing");
  EXPECT_EQ(refusal("host", "\"hopNs\"", "\"hop\""), "the.json: host.hopNs: is missing");
  EXPECT_EQ(refusal("host", "\"host\": {", "\"host\": {\"more\": 1,"), "the.json: host.more: is unknown");
  EXPECT_EQ(refusal("host", "\"bytesPerNs\": 20", "\"bytesPerNs\": 0"),
            "the.json: host.bytesPerNs or host.farBytesPerNs is 0: expected more");
  EXPECT_EQ(refusal("host", "300", "-1"), "the.json: host.hopNs: is -1: expected a number from 0 to 1e+15");
  EXPECT_EQ(refusal("host", "300", "1e400").substr(0, 9), "the.json:");
  EXPECT_EQ(refusal("hopper-nvlink", "\"lines\": {\"startUs\": 3.35", "\"lines\": {\"startUs\": null"),
            "the.json: devices.kernels.lines.startUs: is null: expected a number from 0 to 1e+15");
  EXPECT_EQ(refusal("nccl", "\"ring\": [6.6, 14.0, 8.4]", "\"ring\": [6.6, 14.0]"),
            "the.json: links.baseUs.ring: expected a list of 3 numbers");
  EXPECT_EQ(refusal("nccl", "\"links\"", "\"link\""), "the.json: link: is unknown");
  EXPECT_FALSE(parsePlatform("x", ""));
  EXPECT_FALSE(parsePlatform("x", "[]"));
  EXPECT_FALSE(parsePlatform("x", "{}"));
  EXPECT_FALSE(parsePlatform("x", std::string(100000, '[')));
  EXPECT_FALSE(parsePlatform("x", textOf("host").substr(0, 200)));
}

}  // namespace
}  // namespace tutti::tune::platform_test
