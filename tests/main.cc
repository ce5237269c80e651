// The program of all tests of a folder. With --file=<path> it runs those of tests/<path>_test.cc alone, as ctest has it do; a filter of
// GoogleTest's chooses among them.
#include <fnmatch.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

namespace {

/// Whether one of `patterns`, parted by colons, is like `name`.
bool isLike(std::string_view patterns, const std::string& name) {
  while (!patterns.empty()) {
    const size_t end = std::min(patterns.find(':'), patterns.size());
    if (fnmatch(std::string(patterns.substr(0, end)).c_str(), name.c_str(), 0) == 0) return true;
    patterns.remove_prefix(std::min(end + 1, patterns.size()));
  }
  return false;
}

/// The tests of `file` that `filter` chooses, as a filter; empty where there are none.
std::string testsIn(std::string_view file, std::string_view filter) {
  const size_t minus = std::min(filter.find('-'), filter.size());
  const std::string_view wanted = minus == 0 ? "*" : filter.substr(0, minus);
  const std::string_view unwanted = minus < filter.size() ? filter.substr(minus + 1) : "";
  std::string chosen;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      const std::string name = std::string(suite.name()) + "." + test.name();
      if (std::string_view(test.file()).ends_with(file) && isLike(wanted, name) && !isLike(unwanted, name)) chosen += name + ":";
    }
  }
  return chosen;
}

/// Some play hundreds of processes and their strangers at once, and a shell's limit is 1024.
void allowManyDescriptors() {
  constexpr rlim_t kMany = 16384;
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0 || descriptors.rlim_cur >= kMany) return;
  descriptors.rlim_cur = std::min(descriptors.rlim_max, kMany);
  (void)setrlimit(RLIMIT_NOFILE, &descriptors);
}

}  // namespace

int main(int argc, char** argv) {
  allowManyDescriptors();
  testing::InitGoogleTest(&argc, argv);
  if (argc == 1) return RUN_ALL_TESTS();
  constexpr std::string_view flag = "--file=";
  if (argc > 2 || !std::string_view(argv[1]).starts_with(flag)) {
    std::fprintf(stderr, "usage: %s [--file=<path below tests/, without _test.cc>] [--gtest_…]\n", argv[0]);
    return 2;
  }
  const std::string file = "tests/" + std::string(argv[1] + flag.size()) + "_test.cc";
  const std::string chosen = testsIn(file, GTEST_FLAG_GET(filter));
  if (chosen.empty()) {
    std::fprintf(stderr, "%s: no such test in %s\n", argv[0], file.c_str());
    return 2;
  }
  GTEST_FLAG_SET(filter, chosen);
  return RUN_ALL_TESTS();
}
