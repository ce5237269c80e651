#include "transport/local/offer.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace tutti::transport::local::offer_test {
namespace {

TEST(Offer, IsFoundForItsMessageAlone) {
  std::vector<Offer> ring(4);
  const OfferView offers{ring.data(), 4};
  std::array<std::byte, 100> room{};
  EXPECT_EQ(offers.find(1, 10), nullptr);
  offers.make(5, room.data(), room.size());
  EXPECT_EQ(offers.find(1, 10), nullptr) << "the same place, another message";
  EXPECT_EQ(offers.find(5, 100), room.data());
  EXPECT_EQ(offers.find(5, 101), nullptr) << "too small";
  EXPECT_EQ(offers.find(9, 10), nullptr);
  offers.make(9, room.data() + 1, 99);
  EXPECT_EQ(offers.find(5, 10), nullptr) << "its place was taken";
  EXPECT_EQ(offers.find(9, 99), room.data() + 1);
}

TEST(Offer, NeedsNoRing) { EXPECT_EQ(OfferView{}.find(1, 0), nullptr); }

}  // namespace
}  // namespace tutti::transport::local::offer_test
