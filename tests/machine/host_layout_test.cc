#include "machine/host_layout.h"

#include <gtest/gtest.h>

#include "machine/played.h"

namespace tutti::machine::host_layout_test {
namespace {

topo::Document documentOf(const std::string& rings) {
  const std::string text = "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" crossnic=\"0\" speedintra=\"1\" speedinter=\"1\" "
                           "typeintra=\"NVL\" typeinter=\"PIX\" samechannels=\"0\" " +
                           rings + "</graph></graphs>";
  auto file = topo::parseXml("rings.xml", text);
  EXPECT_TRUE(file) << file.error().text();
  return *file;
}

std::string channelOf(const std::vector<int>& devs) {
  std::string text = "<channel>";
  for (const int dev : devs) text += format("<gpu dev=\"{:x}\"/>", dev);
  return text + "</channel>";
}

TEST(HostLayout, RanksStandForTheGpusOfTheFile) {
  const topo::Document file = documentOf("nchannels=\"2\">" + channelOf({0, 2, 1, 3}) + channelOf({3, 2, 1, 0}));
  const auto found = findHostLayout(file, 4);
  ASSERT_TRUE(found) << found.error().text();
  const std::optional<connect::Layout>& layout = *found;
  if (!layout) FAIL() << "no layout";
  EXPECT_EQ(layout->rings(), (std::vector<std::vector<int32_t>>{{0, 2, 1, 3}, {0, 3, 2, 1}}));
  EXPECT_EQ(layout->view(Rank(1), Rank(0), ChannelId(1)).tree[0].parent, Rank(2)) << "the rings, cut open";
}

// As of a communicator over hosts that was split into those of a host.
TEST(HostLayout, NetsAreOfNoUseInsideAHost) {
  std::string channel = channelOf({0, 2, 1});
  channel.insert(channel.find("<gpu"), "<net dev=\"1\"/>");
  channel.insert(channel.find("</channel>"), "<net dev=\"0\"/>");
  const auto found = findHostLayout(documentOf("nchannels=\"1\">" + channel), 3);
  ASSERT_TRUE(found) << found.error().text();
  ASSERT_TRUE(found->has_value());
  EXPECT_EQ((*found)->rings(), (std::vector<std::vector<int32_t>>{{0, 2, 1}}));
}

TEST(HostLayout, OtherNumbersOfRanksAreNotItsBusiness) {
  const topo::Document file = documentOf("nchannels=\"1\">" + channelOf({0, 2, 1, 3}));
  for (const int32_t ranks : {1, 3, 5}) {
    const auto found = findHostLayout(file, ranks);
    ASSERT_TRUE(found) << found.error().text();
    EXPECT_FALSE(found->has_value());
  }
}

TEST(HostLayout, RefusesWhatMakesNoSense) {
  const auto textOf = [](const std::string& rings, int32_t ranks) {
    const auto found = findHostLayout(documentOf(rings), ranks);
    return found ? std::string() : found.error().text();
  };
  EXPECT_NE(textOf("nchannels=\"1\">" + channelOf({0, 1, 7}), 3).find("dev=\"7\""), std::string::npos);
  EXPECT_NE(textOf("nchannels=\"1\">" + channelOf({0, 1, 1}), 3).find("twice"), std::string::npos);
  EXPECT_NE(textOf("nchannels=\"2\">" + channelOf({0, 1, 2}) + channelOf({0, 1}), 3).find("2 <gpu>; expected 3"), std::string::npos);
  EXPECT_NE(textOf("nchannels=\"0\">", 3).find("rings.xml: there is no graph 0 with channels"), std::string::npos);
}

}  // namespace
}  // namespace tutti::machine::host_layout_test
