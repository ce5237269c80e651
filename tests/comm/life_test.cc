// The state of a communicator and its ends; the file's own tests are beside those of its calls (communicator_test.cc).
#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "comm/setup.h"

namespace tutti::comm::life_test {
namespace {

std::unique_ptr<Communicator> makeAlone(bool blocking) {
  Config config;
  config.blocking = blocking;
  auto comm = Communicator::create(*transport::local::Hub::make(1), Rank(0), 1, 0, 7, config);
  EXPECT_TRUE(comm);
  return std::move(*comm);
}

TEST(Life, AnErrorPoisonsNonBlockingOnesOnly) {
  const auto blocking = makeAlone(true), other = makeAlone(false);
  for (const auto& comm : {blocking.get(), other.get()}) {
    comm->poison(error(Code::InvalidUsage, "first"));
    comm->poison(error(Code::InvalidArgument, "second"));
  }
  EXPECT_EQ(blocking->state(), Code::Ok);
  EXPECT_TRUE(blocking->usable().ok());
  EXPECT_EQ(other->state(), Code::InvalidUsage);
  EXPECT_EQ(other->usable().text(), "first");
  EXPECT_EQ(other->destroyable().text(), "first");
  EXPECT_EQ(other->finalize().text(), "first");
  EXPECT_EQ(other->dividable(true).text(), "first");
}

class Nobody final : public Encounter {
 public:
  std::optional<Result<Outcome>> poll() override { return std::nullopt; }
  void end(const Status&) override {}
  std::string describeMissing(std::span<const int32_t>) const override { return "everybody"; }
};

/// Comes to a bad end between the first look at it and the second.
class SoonOver final : public Setup {
 public:
  explicit SoonOver(Clock& clock) : Setup("test", clock, {}) {}

 private:
  Status arrive() override {
    encounter = std::make_shared<Nobody>();
    return {};
  }
  Status inspect() override { return looks_++ == 0 ? Status() : error(Code::RemoteError, "over"); }
  Status finish(Outcome) override { return {}; }
  Poll settle(Status&) override { return Poll::Ready; }
  Rank unsettled() const override { return Rank(0); }

  int looks_ = 0;
};

TEST(Life, ASetUpThatFailsBetweenTwoLooksIsHeardOf) {
  Config config;
  config.blocking = false;
  Communicator comm(Rank(1), 2, 5, 7, config);
  const auto setup = std::make_shared<SoonOver>(realClock());
  ASSERT_TRUE(setup->start().ok());
  comm.follow(setup);
  EXPECT_EQ(comm.state(), Code::InProgress);
  EXPECT_EQ(comm.state(), Code::RemoteError);
  EXPECT_EQ(comm.usable().text(), "over");
}

TEST(Life, RevokedComesBeforeEverythingElse) {
  const auto comm = makeAlone(false);
  EXPECT_TRUE(comm->revoke().ok());
  comm->poison(error(Code::SystemError, "a call failed"));
  EXPECT_EQ(comm->usable().code(), Code::InvalidUsage);
  EXPECT_EQ(comm->revoke().code(), Code::InvalidArgument);
  EXPECT_EQ(comm->finalize().code(), Code::InvalidArgument);
}

TEST(Life, FinalizedOnce) {
  const auto blocking = makeAlone(true), other = makeAlone(false);
  EXPECT_TRUE(blocking->finalize().ok());
  EXPECT_EQ(blocking->finalize().code(), Code::InvalidArgument);
  EXPECT_EQ(blocking->usable().code(), Code::InvalidUsage);
  EXPECT_EQ(blocking->dividable(false).code(), Code::InvalidUsage);
  EXPECT_EQ(other->finalize().code(), Code::InProgress);
  EXPECT_EQ(other->state(), Code::Ok) << "there was no work";
  EXPECT_TRUE(other->destroyable().ok());
}

TEST(Life, WithoutPeersItIsNotReady) {
  Config config;
  Communicator comm(Rank(1), 2, 5, 7, config);
  EXPECT_EQ(comm.state(), Code::InProgress);
  EXPECT_EQ(comm.usable().code(), Code::InvalidArgument);
  EXPECT_EQ(comm.destroyable().code(), Code::InvalidArgument);
  EXPECT_EQ(comm.revoke().code(), Code::InvalidArgument);
  EXPECT_TRUE(comm.flightBytes().empty());
  comm.abort();
  comm.depart();
}

}  // namespace
}  // namespace tutti::comm::life_test
