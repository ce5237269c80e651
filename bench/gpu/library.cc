#include "gpu/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "bench/units.h"

namespace tutti::bench::gpu {
namespace {

// DataType's values are those of ncclDataType_t; the order of operators is not.
ncclDataType_t typeOf(const CallKind& kind) { return static_cast<ncclDataType_t>(kind.type); }

ncclRedOp_t opOf(const CallKind& kind) {
  switch (kind.redOp.value_or(RedOp::Sum)) {
    case RedOp::Sum: return ncclSum;
    case RedOp::Prod: return ncclProd;
    case RedOp::Max: return ncclMax;
    case RedOp::Min: return ncclMin;
    case RedOp::Avg: return ncclAvg;
    case RedOp::MulSum: break;
  }
  stop("a pre-multiplied sum needs an operator that somebody creates");
}

}  // namespace

Variables parseVariables(const std::vector<std::string>& pairs) {
  Variables variables;
  for (const std::string& pair : pairs) {
    const size_t sign = pair.find('=');
    if (sign == std::string::npos || sign == 0) stop("'{}' is no NAME=VALUE", pair);
    variables.emplace_back(pair.substr(0, sign), pair.substr(sign + 1));
  }
  return variables;
}

std::string describe(const CallKind& kind, int ranks) {
  const std::string op = kind.redOp ? format(" {}", tutti::bench::name(*kind.redOp)) : "";
  return format("{} {}{}, {}{}", kind.operation->name, tutti::name(kind.type), op, formatBytes(kind.bytes(ranks)),
                kind.isInPlace ? ", in place" : "");
}

template <class Function>
void Library::find(Function& function, const char* symbol, bool isNeeded) {
  function = reinterpret_cast<Function>(dlsym(handle_, symbol));
  if (function == nullptr && isNeeded) stop("{} has no {}", path_, symbol);
}

Library::Library(std::string name, const std::string& path, Variables variables)
    : name_(std::move(name)), path_(path), variables_(std::move(variables)) {
  const Environment own(*this);
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) stop("{}: {}", path, dlerror());
  find(getVersion_, "ncclGetVersion");
  find(getUniqueId_, "ncclGetUniqueId");
  find(getErrorString_, "ncclGetErrorString");
  find(getLastError_, "ncclGetLastError");
  find(initRank_, "ncclCommInitRankConfig");
  find(split_, "ncclCommSplit");
  find(destroy_, "ncclCommDestroy");
  find(getAsyncError_, "ncclCommGetAsyncError");
  find(register_, "ncclCommRegister");
  find(deregister_, "ncclCommDeregister");
  find(windowRegister_, "ncclCommWindowRegister");
  find(windowDeregister_, "ncclCommWindowDeregister");
  find(memAlloc_, "ncclMemAlloc");
  find(memFree_, "ncclMemFree");
  find(groupStart_, "ncclGroupStart");
  find(groupEnd_, "ncclGroupEnd");
  find(allReduce_, "ncclAllReduce");
  find(allGather_, "ncclAllGather");
  find(reduceScatter_, "ncclReduceScatter");
  find(broadcast_, "ncclBroadcast");
  find(reduce_, "ncclReduce");
  find(send_, "ncclSend");
  find(recv_, "ncclRecv");
  find(allToAll_, "ncclAlltoAll", false);
  find(gather_, "ncclGather", false);
  find(scatter_, "ncclScatter", false);
  int code = 0;
  check(getVersion_(&code), "ncclGetVersion", nullptr);
  version_ = format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
  const char* (*tuttiVersion)() = nullptr;
  find(tuttiVersion, "tuttiVersionString", false);
  if (tuttiVersion != nullptr) version_ += format(", tutti {}", tuttiVersion());
}

Library::Environment::Environment(const Library& library) {
  for (const auto& [variable, value] : library.variables_) {
    const char* before = std::getenv(variable.c_str());
    before_.emplace_back(variable, before == nullptr ? std::nullopt : std::optional<std::string>(before));
    setenv(variable.c_str(), value.c_str(), 1);
  }
}

Library::Environment::~Environment() {
  for (auto it = before_.rbegin(); it != before_.rend(); ++it) {
    if (it->second)
      setenv(it->first.c_str(), it->second->c_str(), 1);
    else
      unsetenv(it->first.c_str());
  }
}

void Library::check(ncclResult_t code, const char* function, ncclComm_t comm) const {
  if (code == ncclSuccess) return;
  stop("{} ({}): {} returned {}, {}: {}", name_, path_, function, static_cast<int>(code), getErrorString_(code), getLastError_(comm));
}

ncclComm_t Library::connect(World& world, int maxCtas) const {
  const Environment own(*this);
  ncclUniqueId id{};
  if (world.isLead()) check(getUniqueId_(&id), "ncclGetUniqueId", nullptr);
  world.share(&id, sizeof(id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (maxCtas > 0) {
    config.minCTAs = 1;
    config.maxCTAs = maxCtas;
  }
  ncclComm_t comm = nullptr;
  check(initRank_(&comm, world.ranks(), id, world.rank(), &config), "ncclCommInitRankConfig", nullptr);
  return comm;
}

ncclComm_t Library::split(ncclComm_t comm, int colour, int key) const {
  const Environment own(*this);
  ncclComm_t child = nullptr;
  check(split_(comm, colour, key, &child, nullptr), "ncclCommSplit", comm);
  return child;
}

void Library::destroy(ncclComm_t comm) const { check(destroy_(comm), "ncclCommDestroy", nullptr); }

std::byte* Library::allocate(uint64_t bytes) const {
  void* memory = nullptr;
  check(memAlloc_(&memory, bytes), "ncclMemAlloc", nullptr);
  return static_cast<std::byte*>(memory);
}
void Library::release(std::byte* memory) const { check(memFree_(memory), "ncclMemFree", nullptr); }

void* Library::enrol(ncclComm_t comm, std::byte* memory, uint64_t bytes) const {
  void* handle = nullptr;
  check(register_(comm, memory, bytes, &handle), "ncclCommRegister", comm);
  return handle;
}
void Library::withdraw(ncclComm_t comm, void* handle) const { check(deregister_(comm, handle), "ncclCommDeregister", comm); }

ncclWindow_t Library::openWindow(ncclComm_t comm, std::byte* memory, uint64_t bytes) const {
  ncclWindow_t window = nullptr;
  check(windowRegister_(comm, memory, bytes, &window, NCCL_WIN_COLL_SYMMETRIC), "ncclCommWindowRegister", comm);
  return window;
}
void Library::closeWindow(ncclComm_t comm, ncclWindow_t window) const {
  check(windowDeregister_(comm, window), "ncclCommWindowDeregister", comm);
}

void Library::checkAsync(ncclComm_t comm) const {
  ncclResult_t state = ncclSuccess;
  check(getAsyncError_(comm, &state), "ncclCommGetAsyncError", comm);
  check(state, "the work of a call", comm);
}

void Library::allToAll(const CallKind& kind, const std::byte* send, std::byte* receive, int ranks, ncclComm_t comm,
                       cudaStream_t stream) const {
  if (allToAll_ != nullptr) return check(allToAll_(send, receive, kind.count, typeOf(kind), comm, stream), "ncclAlltoAll", comm);
  const uint64_t block = kind.count * sizeOf(kind.type);
  beginGroup();
  for (int peer = 0; peer < ranks; ++peer) {
    check(send_(send + block * peer, kind.count, typeOf(kind), peer, comm, stream), "ncclSend", comm);
    check(recv_(receive + block * peer, kind.count, typeOf(kind), peer, comm, stream), "ncclRecv", comm);
  }
  endGroup();
}

void Library::gather(const CallKind& kind, const std::byte* send, std::byte* receive, int rank, int ranks, ncclComm_t comm,
                     cudaStream_t stream) const {
  if (gather_ != nullptr) return check(gather_(send, receive, kind.count, typeOf(kind), kind.root, comm, stream), "ncclGather", comm);
  beginGroup();
  check(send_(send, kind.count, typeOf(kind), kind.root, comm, stream), "ncclSend", comm);
  for (int peer = 0; rank == kind.root && peer < ranks; ++peer)
    check(recv_(receive + kind.count * sizeOf(kind.type) * peer, kind.count, typeOf(kind), peer, comm, stream), "ncclRecv", comm);
  endGroup();
}

void Library::scatter(const CallKind& kind, const std::byte* send, std::byte* receive, int rank, int ranks, ncclComm_t comm,
                      cudaStream_t stream) const {
  if (scatter_ != nullptr) return check(scatter_(send, receive, kind.count, typeOf(kind), kind.root, comm, stream), "ncclScatter", comm);
  beginGroup();
  check(recv_(receive, kind.count, typeOf(kind), kind.root, comm, stream), "ncclRecv", comm);
  for (int peer = 0; rank == kind.root && peer < ranks; ++peer)
    check(send_(send + kind.count * sizeOf(kind.type) * peer, kind.count, typeOf(kind), peer, comm, stream), "ncclSend", comm);
  endGroup();
}

void Library::call(const CallKind& kind, const std::byte* send, std::byte* receive, int rank, int ranks, ncclComm_t comm,
                   cudaStream_t stream) const {
  const uint64_t count = kind.count;
  const ncclDataType_t type = typeOf(kind);
  switch (kind.operation->op) {
    case Op::AllReduce: return check(allReduce_(send, receive, count, type, opOf(kind), comm, stream), "ncclAllReduce", comm);
    case Op::AllGather: return check(allGather_(send, receive, count, type, comm, stream), "ncclAllGather", comm);
    case Op::ReduceScatter: return check(reduceScatter_(send, receive, count, type, opOf(kind), comm, stream), "ncclReduceScatter", comm);
    case Op::Broadcast: return check(broadcast_(send, receive, count, type, kind.root, comm, stream), "ncclBroadcast", comm);
    case Op::Reduce: return check(reduce_(send, receive, count, type, opOf(kind), kind.root, comm, stream), "ncclReduce", comm);
    case Op::AllToAll: return allToAll(kind, send, receive, ranks, comm, stream);
    case Op::Gather: return gather(kind, send, receive, rank, ranks, comm, stream);
    case Op::Scatter: return scatter(kind, send, receive, rank, ranks, comm, stream);
    case Op::SendRecv:
      beginGroup();
      check(send_(send, count, type, (rank + 1) % ranks, comm, stream), "ncclSend", comm);
      check(recv_(receive, count, type, (rank + ranks - 1) % ranks, comm, stream), "ncclRecv", comm);
      endGroup();
      return;
  }
}

}  // namespace tutti::bench::gpu
