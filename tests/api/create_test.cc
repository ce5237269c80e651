// Making and ending communicators with wrong arguments, wrong configurations and in the wrong order.
#include <cstddef>
#include <cstring>
#include <thread>

#include "api/api_fixture.h"

namespace tutti::api_test::create_test {
namespace {

ncclComm_t const kUntouched = reinterpret_cast<ncclComm_t>(0x1234);

ncclUniqueId newId() {
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ok);
  return id;
}

/// One rank with this configuration; destroyed again when that worked.
ncclResult_t initWith(ncclConfig_t* config) {
  ncclComm_t comm = kUntouched;
  const ncclResult_t result = ncclCommInitRankConfig(&comm, 1, newId(), 0, config);
  if (result != ok) {
    EXPECT_TRUE(comm == kUntouched || comm == nullptr) << "a failed call leaves no communicator behind";
    return result;
  }
  int value = 1, sum = 0;
  EXPECT_EQ(ncclAllReduce(&value, &sum, 1, ncclInt, ncclSum, comm, nullptr), ok);
  EXPECT_EQ(sum, 1);
  EXPECT_EQ(ncclCommDestroy(comm), ok);
  return result;
}

TEST(Create, UniqueIds) {
  EXPECT_TRUE(refused(ncclGetUniqueId(nullptr), ncclInvalidArgument, {"NULL"}));
  const ncclUniqueId a = newId(), b = newId();
  EXPECT_NE(std::memcmp(&a, &b, sizeof a), 0);
}

TEST(Create, RankAndSizeOutOfRange) {
  ncclComm_t comm = kUntouched;
  EXPECT_TRUE(refused(ncclCommInitRank(nullptr, 1, newId(), 0), ncclInvalidArgument, {"comm", "NULL"}));
  for (const int ranks : {0, -1, INT_MIN})
    EXPECT_TRUE(refused(ncclCommInitRank(&comm, ranks, newId(), 0), ncclInvalidArgument, {"nranks", std::to_string(ranks)}));
  for (const int rank : {-1, 2, INT_MAX, INT_MIN})
    EXPECT_TRUE(refused(ncclCommInitRank(&comm, 2, newId(), rank), ncclInvalidArgument, {"rank", std::to_string(rank), "0 to 1"}));
  EXPECT_EQ(comm, kUntouched);
}

TEST(Create, IdsThatNobodyMade) {
  ncclComm_t comm = kUntouched;
  ncclUniqueId zero;
  std::memset(&zero, 0, sizeof zero);
  EXPECT_TRUE(refused(ncclCommInitRank(&comm, 1, zero, 0), ncclInvalidArgument, {"id"}));
  ncclUniqueId noise;
  std::memset(&noise, 0x5b, sizeof noise);
  EXPECT_TRUE(refused(ncclCommInitRank(&comm, 1, noise, 0), ncclInvalidArgument, {"id"}));
}

TEST(Create, ScalableIds) {
  ncclUniqueId ids[3] = {newId(), newId(), newId()};
  ncclComm_t comm = kUntouched;
  EXPECT_TRUE(refused(ncclCommInitRankScalable(&comm, 2, 0, 0, ids, nullptr), ncclInvalidArgument, {"nId", "0", "1"}));
  EXPECT_TRUE(refused(ncclCommInitRankScalable(&comm, 2, 0, 3, ids, nullptr), ncclInvalidArgument, {"nId", "3", "2"}));
  EXPECT_TRUE(refused(ncclCommInitRankScalable(&comm, 2, 0, -1, ids, nullptr), ncclInvalidArgument, {"nId"}));
  EXPECT_TRUE(refused(ncclCommInitRankScalable(&comm, 1, 0, 1, nullptr, nullptr), ncclInvalidArgument, {"commIds", "NULL"}));
  EXPECT_TRUE(refused(ncclCommInitRankScalable(nullptr, 1, 0, 1, ids, nullptr), ncclInvalidArgument, {"comm", "NULL"}));
  EXPECT_TRUE(refused(ncclCommInitRankScalable(&comm, 2, 2, 1, ids, nullptr), ncclInvalidArgument, {"rank", "2"}));
  ncclComm_t comms[3] = {};
  ASSERT_EQ(ncclGroupStart(), ok);
  for (int r = 0; r < 3; ++r) ASSERT_EQ(ncclCommInitRankScalable(&comms[r], 3, r, 2, ids, nullptr), ok);
  ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
  for (ncclComm_t c : comms) EXPECT_EQ(ncclCommDestroy(c), ok);
}

TEST(Create, InitAllArguments) {
  ncclComm_t comms[4] = {};
  EXPECT_TRUE(refused(ncclCommInitAll(nullptr, 2, nullptr), ncclInvalidArgument, {"NULL"}));
  for (const int ranks : {0, -1})
    EXPECT_TRUE(refused(ncclCommInitAll(comms, ranks, nullptr), ncclInvalidArgument, {"ndev", std::to_string(ranks)}));
  const int twice[] = {3, 1, 3};
  EXPECT_TRUE(refused(ncclCommInitAll(comms, 3, twice), ncclInvalidUsage, {"device 3", "twice"}));
  const int outside[] = {0, 1 << 30};
  EXPECT_TRUE(refused(ncclCommInitAll(comms, 2, outside), ncclInvalidArgument, {"devlist[1]", std::to_string(1 << 30)}));
  const int negative[] = {-1};
  EXPECT_TRUE(refused(ncclCommInitAll(comms, 1, negative), ncclInvalidArgument, {"devlist[0]", "-1"}));
  const int chosen[] = {7, 2};
  ASSERT_EQ(ncclCommInitAll(comms, 2, chosen), ok) << ncclGetLastError(nullptr);
  for (int r = 0; r < 2; ++r) {
    int device = -1;
    EXPECT_EQ(ncclCommCuDevice(comms[r], &device), ok);
    EXPECT_EQ(device, chosen[r]);
    EXPECT_EQ(ncclCommDestroy(comms[r]), ok);
  }
}

// Ranks that disagree are told so, on both sides, instead of waiting for ranks that never come.
TEST(Create, RanksThatDisagreeAreTold) {
  conformance::runWithin(20, "two ranks with the same number", [] {
    const ncclUniqueId id = newId();
    ncclComm_t comms[2] = {};
    ASSERT_EQ(ncclGroupStart(), ok);
    ASSERT_EQ(ncclCommInitRank(&comms[0], 2, id, 0), ok);
    (void)ncclCommInitRank(&comms[1], 2, id, 0);
    EXPECT_TRUE(refused(ncclGroupEnd(), ncclInvalidUsage, {"rank 0"}));
  });
  conformance::runWithin(20, "two ranks with different sizes", [] {
    const ncclUniqueId id = newId();
    ncclResult_t results[2] = {};
    std::thread other([&] {
      ncclComm_t comm = nullptr;
      results[1] = ncclCommInitRank(&comm, 3, id, 1);
    });
    ncclComm_t comm = nullptr;
    results[0] = ncclCommInitRank(&comm, 2, id, 0);
    other.join();
    // Who comes second has the bad argument; who came first is told that the other did.
    const auto isRefusal = [](ncclResult_t result) { return result == ncclInvalidUsage || result == ncclInvalidArgument; };
    EXPECT_TRUE(isRefusal(results[0])) << results[0];
    EXPECT_TRUE(isRefusal(results[1])) << results[1];
  });
}

TEST(Config, MagicAndSize) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(initWith(&config), ok);
  EXPECT_EQ(initWith(nullptr), ok);
  config.magic = 0;
  EXPECT_TRUE(refused(initWith(&config), ncclInvalidArgument, {"NCCL_CONFIG_INITIALIZER"}));
  config = NCCL_CONFIG_INITIALIZER;
  config.size = 8;
  EXPECT_TRUE(refused(initWith(&config), ncclInvalidArgument, {"NCCL_CONFIG_INITIALIZER"}));
  config.size = 0;
  EXPECT_TRUE(refused(initWith(&config), ncclInvalidArgument, {"NCCL_CONFIG_INITIALIZER"}));
  // A caller with a newer header: the tail that this library does not know is ignored.
  struct {
    ncclConfig_t known = NCCL_CONFIG_INITIALIZER;
    char tail[64];
  } larger;
  std::memset(larger.tail, 0x7e, sizeof larger.tail);
  larger.known.size = sizeof larger;
  larger.known.version = 99999;
  EXPECT_EQ(initWith(&larger.known), ok) << ncclGetLastError(nullptr);
  // A caller with an older one: what lies behind its end is not read.
  config = NCCL_CONFIG_INITIALIZER;
  config.size = offsetof(ncclConfig_t, version);
  config.blocking = 77;
  EXPECT_EQ(initWith(&config), ok) << ncclGetLastError(nullptr);
}

struct Field {
  const char* name;
  int ncclConfig_t::*member;
  int bad;
  unsigned int since;  // a caller of an older version did not mean it
};
const Field kFields[] = {
    {"blocking", &ncclConfig_t::blocking, 2, 21400},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, -1, 21700},
    {"minCTAs", &ncclConfig_t::minCTAs, 0, 21700},
    {"maxCTAs", &ncclConfig_t::maxCTAs, 0, 21700},
    {"splitShare", &ncclConfig_t::splitShare, 2, 0},
    {"collnetEnable", &ncclConfig_t::collnetEnable, 2, 22700},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, 3, 22700},
    {"shrinkShare", &ncclConfig_t::shrinkShare, -1, 22700},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 0, 22700},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 65, 22800},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 2, 22800},
};

TEST(Config, EveryFieldIsCheckedAndGatedByTheCallersVersion) {
  for (const Field& field : kFields) {
    SCOPED_TRACE(field.name);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.*field.member = field.bad;
    EXPECT_TRUE(refused(initWith(&config), ncclInvalidArgument, {field.name, std::to_string(field.bad)}));
    config.version = 99999;
    EXPECT_TRUE(refused(initWith(&config), ncclInvalidArgument, {field.name}));
    if (field.since == 0) continue;
    config.version = field.since - 1;
    EXPECT_EQ(initWith(&config), ok) << "bytes of a field that version " << config.version
                                     << " did not have: " << ncclGetLastError(nullptr);
  }
}

TEST(Config, CtaLimits) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.minCTAs = 4;
  EXPECT_EQ(initWith(&config), ok) << "minCTAs alone is fine here, see docs/differences.md: " << ncclGetLastError(nullptr);
  config.maxCTAs = 3;
  EXPECT_TRUE(refused(initWith(&config), ncclInvalidArgument, {"minCTAs", "4", "3"}));
  config.maxCTAs = 4;
  EXPECT_EQ(initWith(&config), ok);
  config.minCTAs = NCCL_CONFIG_UNDEF_INT;
  config.maxCTAs = 100000;
  EXPECT_EQ(initWith(&config), ok) << "above 64 means 64";
}

TEST(Config, UnknownNetworkNameIsInvalidUsage) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.netName = "no such network";
  EXPECT_TRUE(refused(initWith(&config), ncclInvalidUsage, {"netName", "no such network"}));
}

TEST(End, NullsAndSecondCalls) {
  EXPECT_EQ(ncclCommDestroy(nullptr), ok);
  EXPECT_EQ(ncclCommAbort(nullptr), ok);
  EXPECT_EQ(ncclCommFinalize(nullptr), ok);
  EXPECT_EQ(ncclCommRevoke(nullptr, 0), ok);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ok);
  EXPECT_EQ(ncclCommFinalize(comm), ok);
  EXPECT_TRUE(refused(ncclCommFinalize(comm), ncclInvalidArgument, {"finalized"}));
  int value = -1;
  EXPECT_EQ(ncclCommCount(comm, &value), ok) << "queries still work";
  EXPECT_EQ(value, 1);
  EXPECT_EQ(ncclCommUserRank(comm, &value), ok);
  EXPECT_EQ(ncclCommCuDevice(comm, &value), ok);
  EXPECT_TRUE(refused(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr), ncclInvalidUsage, {"finalized"}));
  EXPECT_EQ(ncclCommDestroy(comm), ok);
  EXPECT_TRUE(refused(ncclCommCount(comm, &value), ncclInvalidArgument, {"comm"}));
}

TEST(End, QueriesRefuseNulls) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ok);
  EXPECT_TRUE(refused(ncclCommCount(comm, nullptr), ncclInvalidArgument, {"count", "NULL"}));
  EXPECT_TRUE(refused(ncclCommUserRank(comm, nullptr), ncclInvalidArgument, {"rank", "NULL"}));
  EXPECT_TRUE(refused(ncclCommCuDevice(comm, nullptr), ncclInvalidArgument, {"device", "NULL"}));
  EXPECT_TRUE(refused(ncclCommGetAsyncError(comm, nullptr), ncclInvalidArgument, {"asyncError", "NULL"}));
  int value = 0;
  ncclResult_t state = ok;
  EXPECT_TRUE(refused(ncclCommCount(nullptr, &value), ncclInvalidArgument, {"comm", "NULL"}));
  EXPECT_TRUE(refused(ncclCommUserRank(nullptr, &value), ncclInvalidArgument, {"comm", "NULL"}));
  EXPECT_TRUE(refused(ncclCommCuDevice(nullptr, &value), ncclInvalidArgument, {"comm", "NULL"}));
  EXPECT_TRUE(refused(ncclCommGetAsyncError(nullptr, &state), ncclInvalidArgument, {"comm", "NULL"}));
  EXPECT_EQ(ncclCommDestroy(comm), ok);
}

// Destroying in a group that also communicates: the calls run first.
TEST(End, DestroyInAGroupComesAfterTheCalls) {
  ncclComm_t comms[2];
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ok);
  int values[2] = {1, 2};
  ASSERT_EQ(ncclGroupStart(), ok);
  for (int r = 0; r < 2; ++r) ASSERT_EQ(ncclAllReduce(&values[r], &values[r], 1, ncclInt, ncclSum, comms[r], nullptr), ok);
  for (ncclComm_t comm : comms) ASSERT_EQ(ncclCommDestroy(comm), ok);
  ASSERT_EQ(ncclGroupEnd(), ok) << ncclGetLastError(nullptr);
  EXPECT_EQ(values[0], 3);
  EXPECT_EQ(ncclCommDestroy(comms[0]), ncclInvalidArgument);
}

}  // namespace
}  // namespace tutti::api_test::create_test
