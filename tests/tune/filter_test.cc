#include "tune/filter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti::tune::filter_test {
namespace {

const std::vector<std::string_view> kKnown = {"Ring", "Tree", "NVLS", "NVLSTree"};

Filter parse(std::string_view text) {
  auto filter = Filter::parse("NCCL_ALGO", text, kKnown);
  EXPECT_TRUE(filter) << text << ": " << (filter ? "" : filter.error().text());
  return filter ? *filter : Filter();
}

std::string allowed(const Filter& filter, Collective collective) {
  std::string text;
  for (const auto name : kKnown)
    if (filter.allows(collective, name)) text += format("{}{}", text.empty() ? "" : " ", name);
  return text;
}

TEST(Filter, NothingSetAllowsEverything) {
  for (const Filter& filter : {Filter(), parse("")}) {
    for (int c = 0; c < kNumCollectives; ++c) {
      EXPECT_EQ(allowed(filter, static_cast<Collective>(c)), "Ring Tree NVLS NVLSTree");
      EXPECT_FALSE(filter.restricts(static_cast<Collective>(c)));
    }
    EXPECT_EQ(filter.source(), "");
  }
}

struct Example {
  const char* text;
  const char* allReduce;
  const char* broadcast;
};

class Examples : public testing::TestWithParam<Example> {};

TEST_P(Examples, AreRead) {
  const Filter filter = parse(GetParam().text);
  EXPECT_EQ(allowed(filter, Collective::AllReduce), GetParam().allReduce);
  EXPECT_EQ(allowed(filter, Collective::Broadcast), GetParam().broadcast);
  EXPECT_EQ(filter.source(), format("NCCL_ALGO={}", GetParam().text));
}

constexpr char kAll[] = "Ring Tree NVLS NVLSTree";

INSTANTIATE_TEST_SUITE_P(Filter, Examples,
                         testing::Values(Example{"Ring", "Ring", "Ring"}, Example{"RING", "Ring", "Ring"},
                                         Example{"ring,tree", "Ring Tree", "Ring Tree"}, Example{"tree,ring", "Ring Tree", "Ring Tree"},
                                         Example{"^NVLS", "Ring Tree NVLSTree", "Ring Tree NVLSTree"},
                                         Example{"^nvls,nvlstree", "Ring Tree", "Ring Tree"}, Example{"nvlsTREE", "NVLSTree", "NVLSTree"},
                                         Example{"allreduce:tree", "Tree", kAll}, Example{"AllReduce:Tree", "Tree", kAll},
                                         Example{"ring;allreduce:tree", "Tree", "Ring"}, Example{"allreduce:tree;ring", "Tree", "Ring"},
                                         Example{"ring;allreduce:tree,nvls;broadcast:^ring", "Tree NVLS", "Tree NVLS NVLSTree"},
                                         Example{"allreduce:^tree", "Ring NVLS NVLSTree", kAll}, Example{";ring;", "Ring", "Ring"},
                                         Example{"broadcast:ring;", kAll, "Ring"}));

TEST(Filter, KnowsWhatItRestricts) {
  const Filter filter = parse("allreduce:ring;reducescatter:^tree");
  EXPECT_TRUE(filter.restricts(Collective::AllReduce));
  EXPECT_TRUE(filter.restricts(Collective::ReduceScatter));
  EXPECT_FALSE(filter.restricts(Collective::Broadcast));
  EXPECT_TRUE(parse("^tree").restricts(Collective::Broadcast));
}

TEST(Filter, EveryCollectiveCanBeNamed) {
  for (int c = 0; c < kNumCollectives; ++c) {
    const auto collective = static_cast<Collective>(c);
    const Filter filter = parse(format("{}:tree", name(collective)));
    for (int other = 0; other < kNumCollectives; ++other)
      EXPECT_EQ(filter.allows(static_cast<Collective>(other), "Ring"), other != c) << name(collective);
  }
}

TEST(Filter, AsksForNamesInAnyCase) {
  const Filter filter = parse("Ring");
  EXPECT_TRUE(filter.allows(Collective::AllReduce, "rInG"));
  EXPECT_FALSE(filter.allows(Collective::AllReduce, "tree"));
}

struct Wrong {
  const char* text;
  const char* quoted;
};

class WrongNames : public testing::TestWithParam<Wrong> {};

TEST_P(WrongNames, AreRefusedAndQuoted) {
  const auto filter = Filter::parse("NCCL_ALGO", GetParam().text, kKnown);
  ASSERT_FALSE(filter) << GetParam().text;
  EXPECT_EQ(filter.error().code(), Code::InvalidUsage);
  const std::string text = filter.error().text();
  EXPECT_NE(text.find(format("NCCL_ALGO={}", GetParam().text)), std::string::npos) << text;
  EXPECT_NE(text.find(format("'{}'", GetParam().quoted)), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(Filter, WrongNames,
                         testing::Values(Wrong{"rnig", "rnig"}, Wrong{"ring,", ""}, Wrong{"^", ""}, Wrong{"allreduce:", ""},
                                         Wrong{"ring tree", "ring tree"}, Wrong{"ring, tree", " tree"},
                                         Wrong{"allreduce:ring;broadcast:foo", "foo"}, Wrong{"alreduce:ring", "alreduce"},
                                         Wrong{":ring", ""}, Wrong{"^^ring", "^ring"}, Wrong{"ring,^tree", "^tree"},
                                         Wrong{"ringg", "ringg"}, Wrong{"rin", "rin"}));

TEST(Filter, AnUnknownCollectiveIsAnsweredWithTheKnownOnes) {
  const auto filter = Filter::parse("NCCL_ALGO", "alreduce:ring", kKnown);
  ASSERT_FALSE(filter);
  EXPECT_NE(filter.error().text().find("'alreduce' is no collective; known are Broadcast, Reduce, "), std::string::npos)
      << filter.error().text();
}

TEST(Filter, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  const auto filter = Filter::parse("TUTTI_ALGO", "star", {"ring", "oneshot"});
  ASSERT_FALSE(filter);
  EXPECT_NE(filter.error().text().find("ring, oneshot"), std::string::npos) << filter.error().text();
}

}  // namespace
}  // namespace tutti::tune::filter_test
