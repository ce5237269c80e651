// docs/env.md is what params.def says. To renew it: `tutti env --markdown > docs/env.md`.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "config/params.h"

namespace tutti::config::document_test {
namespace {

TEST(EnvDoc, FileEqualsTheTable) {
  std::ifstream file(TUTTI_SOURCE_DIR "/docs/env.md");
  ASSERT_TRUE(file) << "docs/env.md is missing";
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), documentMarkdown()) << "renew docs/env.md: tutti env --markdown > docs/env.md";
}

TEST(EnvDoc, EveryVariableHasOneRowAndASentence) {
  const std::string text = documentMarkdown();
  for (const Entry& entry : table()) {
    const std::string cell = std::string("| `") + entry.name + "` |";
    const size_t at = text.find(cell);
    ASSERT_NE(at, std::string::npos) << entry.name;
    EXPECT_EQ(text.find(cell, at + 1), std::string::npos) << entry.name;
    const std::string doc = entry.doc;
    EXPECT_TRUE(doc.ends_with('.')) << entry.name;
  }
}

TEST(EnvDoc, GroupsAreNotTornApart) {
  std::set<Group> closed;
  Group current = table().front().group;
  for (const Entry& entry : table()) {
    if (entry.group != current) closed.insert(std::exchange(current, entry.group));
    EXPECT_FALSE(closed.contains(entry.group)) << entry.name;
  }
}

TEST(EnvDoc, DefaultsReadAsPeopleWriteThem) {
  EXPECT_EQ(describeDefault(*findEntry("TUTTI_HOST_DEVICES")), "1024");
  EXPECT_EQ(describeDefault(*findEntry("TUTTI_SPIN")), "-1");
  EXPECT_EQ(describeDefault(*findEntry("NCCL_COMM_BLOCKING")), "undefined");
  EXPECT_EQ(describeDefault(*findEntry("TUTTI_DEVICE")), "auto");
  EXPECT_EQ(describeDefault(*findEntry("NCCL_ALGO")), "not set");
}

// A bar inside a cell would end it, and move all that follows.
TEST(EnvDoc, EveryRowHasFiveCells) {
  std::istringstream text(documentMarkdown());
  std::string line;
  size_t rows = 0;
  while (std::getline(text, line)) {
    if (!line.starts_with("| `")) continue;
    ++rows;
    size_t bars = 0;
    for (size_t i = 0; i < line.size(); ++i) bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
    EXPECT_EQ(bars, 6U) << line;
  }
  EXPECT_EQ(rows, table().size());
}

}  // namespace
}  // namespace tutti::config::document_test
