#include "transport/plugin/library.h"

#include <gtest/gtest.h>

namespace tutti::transport::plugin::library_test {
namespace {

using Names = std::vector<std::string>;

TEST(PluginNames, FollowTheRulesOfTheVariable) {
  EXPECT_EQ(pluginNames(""), Names{"libnccl-net.so"});
  EXPECT_EQ(pluginNames("  "), Names{"libnccl-net.so"});
  EXPECT_EQ(pluginNames("none"), Names{});
  EXPECT_EQ(pluginNames("ofi"), Names{"ofi"});
  EXPECT_EQ(pluginNames("a, b,,c"), (Names{"a", "b", "c"}));
  EXPECT_EQ(pluginNames("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16").size(), kMostNames);
}

TEST(Library, IsFoundByShortNameAndByFile) {
  for (const char* name : {"example", "libnccl-net-example.so"}) {
    const auto library = Library::load(name);
    ASSERT_TRUE(library) << library.error().text();
    EXPECT_EQ((*library)->networkName(), "Example");
    EXPECT_EQ((*library)->version().number, 11) << "the newest";
  }
  for (int newest = 8; newest <= 11; ++newest) EXPECT_EQ((*Library::load("example", newest))->version().number, newest);
}

TEST(Library, ThatIsNoneIsToldApartFromOneThatExportsNothing) {
  const auto missing = Library::load("there-is-no-such-plugin");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::SystemError);
  EXPECT_NE(missing.error().text().find("libnccl-net-there-is-no-such-plugin.so"), std::string::npos) << missing.error().text();
  const auto other = Library::load("libm.so.6");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), Code::InvalidUsage);
  EXPECT_FALSE(Library::load("example", 7)) << "too old";
  EXPECT_EQ(Library::load("STATIC_PLUGIN").error().code(), Code::InvalidUsage) << "this program exports none";
}

TEST(ResultCode, OfAPluginBecomesOurs) {
  EXPECT_TRUE(statusOf(0, "x", "test").ok());
  EXPECT_EQ(statusOf(6, "x", "test").code(), Code::RemoteError);
  EXPECT_EQ(statusOf(2, "x", "test").code(), Code::SystemError);
  EXPECT_EQ(statusOf(7, "x", "test").code(), Code::InternalError);
  EXPECT_EQ(statusOf(-3, "x", "test").code(), Code::InternalError);
  EXPECT_NE(statusOf(6, "Foo", "isend").text().find("network Foo: isend"), std::string::npos);
}

}  // namespace
}  // namespace tutti::transport::plugin::library_test
