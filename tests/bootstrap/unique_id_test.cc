#include "bootstrap/unique_id.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tutti::bootstrap::unique_id_test {
namespace {

UniqueId sample(size_t v4, size_t v6) {
  UniqueId id;
  id.hash = 0x1122334455667788;
  id.maker = 42;
  id.pid = 4711;
  for (size_t i = 0; i < id.secret.size(); ++i) id.secret[i] = static_cast<uint8_t>(i * 3);
  for (size_t i = 0; i < v4 + v6; ++i) {
    Address address = *parseAddress(i < v4 ? "192.0.2." + std::to_string(i + 1) : "2001:db8::" + std::to_string(i + 1));
    address.port = static_cast<uint16_t>(1000 + i);
    id.addresses.push_back(address);
  }
  return id;
}

TEST(UniqueId, SurvivesItsBytes) {
  for (const auto& [v4, v6] : {std::pair{0, 0}, {1, 0}, {0, 1}, {2, 2}, {9, 0}, {0, 3}}) {
    const UniqueId id = sample(static_cast<size_t>(v4), static_cast<size_t>(v6));
    const auto again = UniqueId::decode(id.encode());
    ASSERT_TRUE(again) << v4 << " " << v6;
    EXPECT_EQ(again->hash, id.hash);
    EXPECT_EQ(again->maker, id.maker);
    EXPECT_EQ(again->pid, id.pid);
    EXPECT_EQ(again->secret, id.secret);
    EXPECT_EQ(again->addresses, id.addresses);
    EXPECT_FALSE(again->isFixed);
  }
}

TEST(UniqueId, KeepsThePreferredAddressesWhenNotAllFit) {
  const UniqueId id = sample(2, 10);
  const auto again = UniqueId::decode(id.encode());
  ASSERT_TRUE(again);
  ASSERT_EQ(again->addresses.size(), 4U);
  EXPECT_EQ(id.fitting(), 4U);
  EXPECT_TRUE(std::equal(again->addresses.begin(), again->addresses.end(), id.addresses.begin()));
}

TEST(UniqueId, RefusesWhatIsNoId) {
  EXPECT_FALSE(UniqueId::decode(UniqueIdBytes{}));
  UniqueIdBytes bytes = sample(1, 0).encode();
  bytes[0] ^= 1;
  const auto refused = UniqueId::decode(bytes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::InvalidArgument);
  std::mt19937 random(1);
  for (int i = 0; i < 100'000; ++i) {  // whatever it is, nothing is read beyond the bytes
    UniqueIdBytes any = sample(1, 1).encode();
    for (int change = 0; change < 4; ++change) any[8 + random() % 120] = static_cast<unsigned char>(random());
    const auto decoded = UniqueId::decode(any);
    if (decoded) {
      EXPECT_LE(decoded->addresses.size(), 9U);
    }
  }
}

TEST(Blocks, FollowTheMappingOfScalableInit) {
  for (int32_t ranks = 1; ranks <= 40; ++ranks) {
    for (int32_t ids = 1; ids <= ranks; ++ids) {
      int32_t next = 0;
      for (int32_t index = 0; index < ids; ++index) {
        const Block block = blockAt(index, ranks, ids);
        EXPECT_EQ(block.first, next);
        EXPECT_EQ(block.count, ranks / ids + (index < ranks % ids ? 1 : 0));
        for (int32_t rank = block.first; rank < block.first + block.count; ++rank) EXPECT_EQ(blockOf(rank, ranks, ids).index, index);
        next += block.count;
      }
      EXPECT_EQ(next, ranks);
    }
  }
}

}  // namespace
}  // namespace tutti::bootstrap::unique_id_test
