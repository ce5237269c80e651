// docs/env.md is what params.def says. To renew it: `tutti env --markdown > docs/env.md`.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "config/params.h"

namespace tutti::config {
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

}  // namespace
}  // namespace tutti::config
