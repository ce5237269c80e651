#include "bootstrap/wire.h"

#include <gtest/gtest.h>

namespace tutti::bootstrap::wire_test {
namespace {

TEST(Wire, WhatIsWrittenIsRead) {
  Writer writer;
  writer.number(uint8_t{200});
  writer.number(int32_t{-5});
  writer.number(uint64_t{0x0102030405060708});
  writer.text("name");
  writer.blob(std::as_bytes(std::span("xyz", 3)));
  writer.raw(std::array<uint8_t, 3>{1, 2, 3});
  EXPECT_EQ(std::to_integer<int>(writer.view()[5]), 8) << "little-endian on every machine";
  Reader reader(writer.view());
  EXPECT_EQ(reader.number<uint8_t>(), 200);
  EXPECT_EQ(reader.number<int32_t>(), -5);
  EXPECT_EQ(reader.number<uint64_t>(), 0x0102030405060708U);
  EXPECT_EQ(reader.text(4), "name");
  EXPECT_EQ(reader.blob().size(), 3U);
  EXPECT_FALSE(reader.atEnd());
  std::array<uint8_t, 3> raw{};
  reader.raw(raw);
  EXPECT_EQ(raw, (std::array<uint8_t, 3>{1, 2, 3}));
  EXPECT_TRUE(reader.atEnd());
}

TEST(Wire, NothingIsReadBeyondTheEnd) {
  Writer writer;
  writer.number(uint16_t{7});
  Reader reader(writer.view());
  EXPECT_EQ(reader.number<uint32_t>(), 0U);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.number<uint16_t>(), 0) << "after a failure everything is zero";
  EXPECT_FALSE(reader.atEnd());
}

TEST(Wire, LengthsThatLieFail) {
  Writer writer;
  writer.number(uint32_t{1U << 31});
  {
    Reader reader(writer.view());
    EXPECT_EQ(reader.count(1), 0U) << "more than there is";
    EXPECT_FALSE(reader.ok());
  }
  {
    Reader reader(writer.view());
    EXPECT_TRUE(reader.blob().empty());
    EXPECT_FALSE(reader.ok());
  }
  Writer text;
  text.text("long");
  Reader reader(text.view());
  EXPECT_EQ(reader.text(3), "") << "longer than allowed";
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace tutti::bootstrap::wire_test
