#include "bootstrap/share.h"

#include "net.h"

namespace tutti::bootstrap::share_test {
namespace {

using namespace play;

Result<UniqueFd> fetch(Loop& loop, const SharePlace& place, milliseconds limit = milliseconds(2000)) {
  std::promise<Result<UniqueFd>> done;
  auto outcome = done.get_future();
  loop.reactor.post([&] { fetchShared(loop.reactor, place, limit, [&](Result<UniqueFd> fd) { done.set_value(std::move(fd)); }); });
  return outcome.get();
}

TEST(Share, ManyGetTheSameMemory) {
  Loop loop;
  const SharePlace place{123, kSecret, 1};
  const UniqueFd memory = std::move(*sharedMarked(9)(Roster{}));
  Result<std::shared_ptr<Listener>> offer = fail(Code::InternalError, "");
  loop.run([&] { offer = offerShared(loop.reactor, place, memory.get()); });
  ASSERT_TRUE(offer) << offer.error().text();
  for (int i = 0; i < 20; ++i) {
    const auto fd = fetch(loop, place);
    ASSERT_TRUE(fd) << fd.error().text();
    EXPECT_EQ(markOf(*fd), 9);
  }
  SharePlace other = place;
  other.key[0] ^= 1;
  EXPECT_FALSE(fetch(loop, other)) << "another key is another name";
  other = place;
  other.host = 2;
  EXPECT_FALSE(fetch(loop, other));
  Result<std::shared_ptr<Listener>> again = fail(Code::InternalError, "");
  loop.run([&] { again = offerShared(loop.reactor, place, memory.get()); });
  EXPECT_FALSE(again) << "the name is taken";
  loop.run([&] { (*offer)->close(); });
  EXPECT_FALSE(fetch(loop, place)) << "the offer is over";
}

}  // namespace
}  // namespace tutti::bootstrap::share_test
