#include "observe/libraries.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace tutti::observe::libraries_test {
namespace {

TEST(Libraries, AreFoundByTheBeginningOfTheirFileName) {
  const auto found = mappedLibraries("libc.so");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].path.front(), '/');
  EXPECT_FALSE(found[0].isThis);
  EXPECT_EQ(found[0].buildId.size() % 2, 0u);
  EXPECT_EQ(found[0].buildId.find_first_not_of("0123456789abcdef"), std::string::npos) << found[0].buildId;
  EXPECT_TRUE(mappedLibraries("libthatisnone").empty());
}

TEST(Libraries, ASecondOneIsSeenOnceItIsMapped) {
  const char* const second = std::getenv("TUTTI_TEST_SECOND");
  ASSERT_NE(second, nullptr);
  const auto isIt = [&](const MappedLibrary& library) { return library.path.find("fake_tested") != std::string::npos; };
  const auto before = mappedLibraries("libnccl.so");
  EXPECT_EQ(std::count_if(before.begin(), before.end(), isIt), 0);
  void* const opened = dlopen(second, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(opened, nullptr) << dlerror();
  const auto after = mappedLibraries("libnccl.so");
  const auto it = std::find_if(after.begin(), after.end(), isIt);
  ASSERT_NE(it, after.end());
  EXPECT_FALSE(it->buildId.empty()) << "it was linked with one";
  EXPECT_FALSE(it->isThis);
  dlclose(opened);
}

}  // namespace
}  // namespace tutti::observe::libraries_test
