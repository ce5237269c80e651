#include "bootstrap/world.h"

#include <gtest/gtest.h>

#include "bootstrap/seal.h"

namespace tutti::bootstrap::world_test {
namespace {

TEST(World, HostsDifferByNameBootAndNetwork) {
  ASSERT_TRUE(prepareCrypto().ok());
  const HostFacts here{"node", "boot-1", 5};
  EXPECT_EQ(identityOf(here, ""), identityOf(here, ""));
  EXPECT_NE(identityOf(here, ""), identityOf({"other", "boot-1", 5}, ""));
  EXPECT_NE(identityOf(here, ""), identityOf({"node", "boot-2", 5}, ""));
  EXPECT_NE(identityOf(here, ""), identityOf({"node", "boot-1", 6}, "")) << "a network namespace counts as a host";
}

TEST(World, NcclHostidStandsForNameAndBoot) {
  const HostFacts here{"node", "boot-1", 5};
  EXPECT_NE(identityOf(here, "a"), identityOf(here, "b"));
  EXPECT_EQ(identityOf(here, "a"), identityOf({"other", "boot-2", 5}, "a"));
  EXPECT_NE(identityOf(here, "a"), identityOf({"node", "boot-1", 6}, "a"));
}

TEST(World, TheMachineSaysWhoItIs) {
  const HostFacts facts = readHostFacts();
  EXPECT_FALSE(facts.name.empty());
  EXPECT_EQ(facts.name.find('.'), std::string::npos);
  EXPECT_GE(facts.bootId.size(), 36U);
  EXPECT_NE(facts.networkSpace, 0U);
}

}  // namespace
}  // namespace tutti::bootstrap::world_test
