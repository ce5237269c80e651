// What the tests of the C interface share: a pair of ranks driven by one thread, and checks of a refused call.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>

#include "conformance/harness.h"

namespace tutti::api_test {

inline constexpr ncclResult_t ok = ncclSuccess;

/// The call was refused with `code`, and the latest error's text mentions all of `words`.
inline testing::AssertionResult refused(ncclResult_t result, ncclResult_t code, std::initializer_list<std::string_view> words) {
  const std::string text = ncclGetLastError(nullptr);
  if (result != code) return testing::AssertionFailure() << "returned " << result << " instead of " << code << ", last error: " << text;
  for (const std::string_view word : words)
    if (text.find(word) == std::string::npos) return testing::AssertionFailure() << "the text does not mention '" << word << "': " << text;
  return testing::AssertionSuccess();
}

/// A value that the enum may not have, as a C caller can pass it.
template <class Enum>
Enum enumOf(int value) {
  static_assert(sizeof(Enum) == sizeof value);
  Enum result;
  std::memcpy(&result, &value, sizeof value);
  return result;
}

/// Two ranks made by ncclCommInitAll; calls on them belong into a group.
class Pair : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok) << ncclGetLastError(nullptr); }
  void TearDown() override {
    for (ncclComm_t comm : comms) EXPECT_EQ(ncclCommDestroy(comm), ok) << ncclGetLastError(nullptr);
  }
  /// The communicators still do what they are for.
  void expectUsable() {
    int values[2] = {1, 2};
    ASSERT_EQ(ncclGroupStart(), ok);
    for (int r = 0; r < 2; ++r)
      ASSERT_EQ(ncclAllReduce(&values[r], &values[r], 1, ncclInt, ncclSum, comms[r], nullptr), ok) << ncclGetLastError(nullptr);
    ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
    EXPECT_EQ(values[0], 3);
    EXPECT_EQ(values[1], 3);
  }
  ncclComm_t comms[2] = {};
};

}  // namespace tutti::api_test
