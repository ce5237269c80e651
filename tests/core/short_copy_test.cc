#include "core/short_copy.h"

#include <gtest/gtest.h>

#include <array>

namespace tutti::short_copy_test {
namespace {

TEST(ShortCopy, CopiesEveryLengthAndNothingBeside) {
  std::array<unsigned char, 160> from{};
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 7 + 1);
  for (const size_t shift : {0U, 1U, 3U, 8U}) {
    for (size_t bytes = 0; bytes <= 100; ++bytes) {
      std::array<unsigned char, 160> to{};
      copyShort(to.data() + shift, from.data() + 9, bytes);
      for (size_t i = 0; i < to.size(); ++i) {
        const bool isIn = i >= shift && i < shift + bytes;
        ASSERT_EQ(to[i], isIn ? from[9 + i - shift] : 0) << bytes << " bytes, at " << i;
      }
    }
  }
}

TEST(ShortCopy, LeavesWhatIsCopiedToItself) {
  for (size_t bytes = 0; bytes <= 20; ++bytes) {
    std::array<unsigned char, 32> data{};
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i + 1);
    const auto before = data;
    copyShort(data.data(), data.data(), bytes);
    EXPECT_EQ(data, before);
  }
}

}  // namespace
}  // namespace tutti::short_copy_test
