// Unique ids and the making of communicators.

#include <algorithm>
#include <cstring>
#include <set>
#include <span>

#include "api/config.h"
#include "api/devices.h"
#include "api/guard.h"
#include "config/params.h"
#include "observe/libraries.h"

namespace tutti::api {

int hostDevices() {
  const int64_t n = config::get<config::Param::TuttiHostDevices>();
  return static_cast<int>(std::clamp<int64_t>(n, 1, INT32_MAX));
}

namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(bootstrap::UniqueIdBytes));

/// The device of a new rank: the thread's choice; of host devices, the one with the rank's number where it has none.
Status chooseDevice(comm::JoinRequest& request) {
  comm::Devices& devices = comm::process().devices;
  const auto gpus = devices.useGpus();
  if (!gpus) return gpus.error();
  request.onGpu = *gpus;
  if (*gpus) {
    const auto current = devices.current();
    if (!current) return current.error();
    request.device = *current;
    return {};
  }
  const int chosen = comm::thisThread().hostDevice;
  request.device = chosen >= 0 ? chosen : request.rank.value % hostDevices();
  return {};
}

void printBanner(int rank) {
  observe::setUpLog();
  observe::printBanner(format("NCCL version {}.{}.{}+tutti{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, "0.1.0"), rank == 0);
  observe::tellLibrary();
}

Status checkRanks(ncclComm_t* newcomm, int ranks, int rank) {
  if (newcomm == nullptr) return error(Code::InvalidArgument, "comm is NULL: expected where to write the communicator");
  if (ranks < 1) return error(Code::InvalidArgument, "nranks {} is out of range: at least 1", ranks);
  if (rank < 0 || rank >= ranks) return error(Code::InvalidArgument, "rank {} is out of range: 0 to {}", rank, ranks - 1);
  return {};
}

Status initRank(const char* function, ncclComm_t* newcomm, int ranks, std::span<const ncclUniqueId> ids, int rank,
                const ncclConfig_t* config) {
  TUTTI_TRY(checkRanks(newcomm, ranks, rank));
  auto parsed = readConfig(config);
  if (!parsed) return std::move(parsed).error();
  printBanner(rank);
  comm::JoinRequest request;
  request.result = newcomm;
  request.ids.resize(ids.size());
  std::memcpy(request.ids.data(), ids.data(), ids.size_bytes());
  request.ranks = ranks;
  request.rank = Rank(rank);
  request.failed = chooseDevice(request);
  request.config = std::move(*parsed);
  request.function = function;
  return comm::thisThread().group.add(std::move(request));
}

Status checkDevices(int count, const int* devices, int available, bool gpus) {
  const bool mayShare = gpus && devices != nullptr && config::get<config::Param::TuttiMultiRankGpu>() != 0;
  if (count > available && !mayShare)
    return error(Code::InvalidArgument, "ndev {} is out of range: there are {} {}", count, available,
                 gpus ? "GPUs" : "host devices (TUTTI_HOST_DEVICES)");
  std::set<int> taken;
  for (int i = 0; devices != nullptr && i < count; ++i) {
    if (devices[i] < 0 || devices[i] >= available)
      return error(Code::InvalidArgument, "devlist[{}] is {}: {} are 0 to {}", i, devices[i], gpus ? "GPUs" : "host devices",
                   available - 1);
    if (!taken.insert(devices[i]).second && !mayShare)
      return error(Code::InvalidUsage, "devlist[{}]: device {} is listed twice", i, devices[i]);
  }
  return {};
}

Status initAll(ncclComm_t* comms, int count, const int* devices) {
  if (comms == nullptr) return error(Code::InvalidArgument, "comms is NULL: expected room for {} communicators", count);
  if (count < 1) return error(Code::InvalidArgument, "ndev {} is out of range: at least 1", count);
  const auto gpus = comm::process().devices.useGpus();
  if (!gpus) return gpus.error();
  const auto available = *gpus ? comm::process().devices.count() : Result<int32_t>(hostDevices());
  if (!available) return available.error();
  TUTTI_TRY(checkDevices(count, devices, *available, *gpus));
  auto config = readConfig(nullptr);
  if (!config) return std::move(config).error();
  auto id = comm::process().bootstrap.makeId();
  if (!id) return std::move(id).error();
  printBanner(0);
  comm::Group group;  // of its own: the communicators are there on return, also inside a caller's group
  group.start();
  for (int rank = 0; rank < count; ++rank)
    TUTTI_TRY(group.add(
        {&comms[rank], {*id}, count, Rank(rank), devices != nullptr ? devices[rank] : rank, *config, "ncclCommInitAll", *gpus, {}}));
  return group.end();
}

}  // namespace
}  // namespace tutti::api

using tutti::Code;
using tutti::Status;
using tutti::api::guard;

extern "C" ncclResult_t pncclGetUniqueId(ncclUniqueId* id) {
  return guard("ncclGetUniqueId", [&]() -> Status {
    if (id == nullptr) return tutti::error(Code::InvalidArgument, "uniqueId is NULL: expected where to write the id");
    const auto made = tutti::comm::process().bootstrap.makeId();
    if (!made) return made.error();
    std::memcpy(id, made->data(), sizeof *id);
    return {};
  });
}
TUTTI_WEAK_TWIN(ncclGetUniqueId);

extern "C" ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return guard("ncclCommInitRank", [&] { return tutti::api::initRank("ncclCommInitRank", comm, nranks, {&commId, 1}, rank, nullptr); });
}
TUTTI_WEAK_TWIN(ncclCommInitRank);

extern "C" ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config) {
  return guard("ncclCommInitRankConfig", [&] {
    return tutti::api::initRank("ncclCommInitRankConfig", comm, nranks, {&commId, 1}, rank, config);
  });
}
TUTTI_WEAK_TWIN(ncclCommInitRankConfig);

extern "C" ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
                                                  ncclConfig_t* config) {
  return guard("ncclCommInitRankScalable", [&]() -> Status {
    TUTTI_TRY(tutti::api::checkRanks(newcomm, nranks, myrank));
    if (nId < 1 || nId > nranks)
      return tutti::error(Code::InvalidArgument, "nId {} is out of range: 1 to nranks, which is {}", nId, nranks);
    if (commIds == nullptr) return tutti::error(Code::InvalidArgument, "commIds is NULL: expected {} unique ids", nId);
    return tutti::api::initRank("ncclCommInitRankScalable", newcomm, nranks, {commIds, static_cast<size_t>(nId)}, myrank, config);
  });
}
TUTTI_WEAK_TWIN(ncclCommInitRankScalable);

extern "C" ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  return guard("ncclCommInitAll", [&] { return tutti::api::initAll(comm, ndev, devlist); });
}
TUTTI_WEAK_TWIN(ncclCommInitAll);
