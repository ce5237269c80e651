#include "memory/exports.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace tutti::memory::exports_test {
namespace {

/// The table read through the system, as another process would, of this very process.
ImportTable importOf(const ExportTable& table) {
  auto imports = ImportTable::open(getpid(), table.fd());
  EXPECT_TRUE(imports) << (imports ? "" : imports.error().text());
  return imports ? std::move(*imports) : ImportTable();
}

TEST(Exports, WhatIsListedIsSeenElsewhere) {
  auto table = ExportTable::create();
  ASSERT_TRUE(table);
  ImportTable imports = importOf(*table);
  auto memory = Mapping::shareable(Bytes(10000));
  ASSERT_TRUE(memory);
  const auto base = reinterpret_cast<uint64_t>(memory->data());
  EXPECT_EQ(imports.find(base, 1), nullptr);
  table->add(memory->data(), memory->size(), memory->fd());
  std::memcpy(memory->data() + 5000, "hello", 5);
  const std::byte* seen = imports.find(base + 5000, 5);
  ASSERT_NE(seen, nullptr);
  EXPECT_NE(seen, memory->data() + 5000) << "another mapping";
  EXPECT_EQ(std::memcmp(seen, "hello", 5), 0);
  EXPECT_NE(imports.find(base, memory->size().value), nullptr);
  EXPECT_EQ(imports.find(base + 1, memory->size().value), nullptr) << "one byte too many";
  EXPECT_EQ(imports.find(base - 1, 1), nullptr);
  EXPECT_EQ(imports.find(base + 16, ~uint64_t{0} - 8), nullptr) << "its end is before its beginning";
  table->remove(memory->data());
  EXPECT_EQ(imports.find(base, 1), nullptr);
}

TEST(Exports, ASecondRegionAtTheSameAddressIsAnotherOne) {
  auto table = ExportTable::create();
  ASSERT_TRUE(table);
  ImportTable imports = importOf(*table);
  auto first = Mapping::shareable(Bytes(4096)), second = Mapping::shareable(Bytes(4096));
  ASSERT_TRUE(first && second);
  auto* const address = reinterpret_cast<std::byte*>(uint64_t{1} << 40);
  first->data()[0] = std::byte{1};
  second->data()[0] = std::byte{2};
  table->add(address, first->size(), first->fd());
  EXPECT_EQ(*imports.find(uint64_t{1} << 40, 1), std::byte{1});
  table->remove(address);
  table->add(address, second->size(), second->fd());
  EXPECT_EQ(*imports.find(uint64_t{1} << 40, 1), std::byte{2});
}

TEST(Exports, ManyRegionsComeAndGo) {
  auto table = ExportTable::create();
  ASSERT_TRUE(table);
  ImportTable imports = importOf(*table);
  std::vector<Mapping> live;
  for (int i = 0; i < 300; ++i) {
    auto made = Mapping::shareable(Bytes(4096));
    ASSERT_TRUE(made);
    live.push_back(std::move(*made));
    live.back().data()[1] = static_cast<std::byte>(i);
    table->add(live.back().data(), live.back().size(), live.back().fd());
    if (i % 3 == 0) {
      table->remove(live.front().data());
      live.erase(live.begin());
    }
    for (const Mapping& m : live) {
      const std::byte* seen = imports.find(reinterpret_cast<uint64_t>(m.data()) + 1, 1);
      ASSERT_NE(seen, nullptr);
      ASSERT_EQ(*seen, m.data()[1]);
    }
  }
}

TEST(Exports, WhatIsNoTableIsRefused) {
  auto small = Mapping::shareable(Bytes(4096));
  ASSERT_TRUE(small);
  EXPECT_FALSE(ImportTable::open(getpid(), small->fd()));
  EXPECT_FALSE(ImportTable::open(getpid(), 9999));
  EXPECT_FALSE(ImportTable::open(1 << 30, small->fd()));
}

}  // namespace
}  // namespace tutti::memory::exports_test
