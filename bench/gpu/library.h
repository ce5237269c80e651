// One of the two libraries: its functions, found by dlopen, so that both live in one process; and one communicator on it.
//
// Owner: a rank's process, one thread. A call that fails ends the process and names library, function and the library's own text.
// 1. RTLD_LOCAL, and this program links neither: a library's calls of its own functions stay within it.
// 2. Libraries read variables at first use and at the making of a communicator. So a library's own are set while it is opened, while a
//    communicator is made and during the first call of each kind, and are taken back afterwards (Library::Environment).
// 3. The loader takes two paths to one file for one library: a copy is needed to compare a library with itself.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/operation.h"
#include "bench/options.h"
#include "core/types.h"
#include "gpu/world.h"
#include "nccl.h"

namespace tutti::bench::gpu {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// "NAME=VALUE" each.
Variables parseVariables(const std::vector<std::string>& pairs);

/// The same on all ranks.
struct CallKind {
  const Operation* operation = nullptr;
  DataType type = DataType::F32;
  std::optional<RedOp> redOp;  ///< empty for moves
  int root = 0;
  uint64_t count = 0;
  bool isInPlace = false;

  uint64_t sendBytes(int ranks) const { return operation->sendCount(count, ranks) * sizeOf(type); }
  uint64_t receiveBytes(int ranks) const { return operation->receiveCount(count, ranks) * sizeOf(type); }
  uint64_t bytes(int ranks) const { return operation->sizeCount(count, ranks) * sizeOf(type); }
};

/// "all_reduce float sum, 1 MiB".
std::string describe(const CallKind& kind, int ranks);

class Library {
 public:
  Library(std::string name, const std::string& path, Variables variables);

  /// Sets the library's variables, and takes them back.
  class Environment {
   public:
    explicit Environment(const Library& library);
    ~Environment();
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

   private:
    std::vector<std::pair<std::string, std::optional<std::string>>> before_;
  };

  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }
  /// "2.28.9", and "tutti 0.1.0" where it is that.
  const std::string& version() const { return version_; }

  /// Whether the loader took both for one (3).
  bool isSameAs(const Library& other) const { return handle_ == other.handle_; }

  /// Collective. `maxCtas` 0: as the library likes.
  ncclComm_t connect(World& world, int maxCtas) const;
  /// A communicator of the ranks that name the same colour; null for colour -1.
  ncclComm_t split(ncclComm_t comm, int colour, int key) const;
  void destroy(ncclComm_t comm) const;
  std::byte* allocate(uint64_t bytes) const;
  void release(std::byte* memory) const;
  void* enrol(ncclComm_t comm, std::byte* memory, uint64_t bytes) const;
  ncclWindow_t openWindow(ncclComm_t comm, std::byte* memory, uint64_t bytes) const;  ///< collective
  void closeWindow(ncclComm_t comm, ncclWindow_t window) const;
  void withdraw(ncclComm_t comm, void* handle) const;
  void beginGroup() const { check(groupStart_(), "ncclGroupStart", nullptr); }
  void endGroup() const { check(groupEnd_(), "ncclGroupEnd", nullptr); }
  void call(const CallKind& kind, const std::byte* send, std::byte* receive, int rank, int ranks, ncclComm_t comm,
            cudaStream_t stream) const;
  void checkAsync(ncclComm_t comm) const;

 private:
  void check(ncclResult_t code, const char* function, ncclComm_t comm) const;
  template <class Function>
  void find(Function& function, const char* symbol, bool isNeeded = true);
  void allToAll(const CallKind& kind, const std::byte* send, std::byte* receive, int ranks, ncclComm_t comm, cudaStream_t stream) const;
  void gather(const CallKind& kind, const std::byte* send, std::byte* receive, int rank, int ranks, ncclComm_t comm,
              cudaStream_t stream) const;
  void scatter(const CallKind& kind, const std::byte* send, std::byte* receive, int rank, int ranks, ncclComm_t comm,
               cudaStream_t stream) const;

  std::string name_;
  std::string path_;
  Variables variables_;
  void* handle_ = nullptr;
  std::string version_;

  decltype(&ncclGetVersion) getVersion_ = nullptr;
  decltype(&ncclGetUniqueId) getUniqueId_ = nullptr;
  decltype(&ncclGetErrorString) getErrorString_ = nullptr;
  decltype(&ncclGetLastError) getLastError_ = nullptr;
  decltype(&ncclCommInitRankConfig) initRank_ = nullptr;
  decltype(&ncclCommSplit) split_ = nullptr;
  decltype(&ncclCommDestroy) destroy_ = nullptr;
  decltype(&ncclCommGetAsyncError) getAsyncError_ = nullptr;
  decltype(&ncclCommRegister) register_ = nullptr;
  decltype(&ncclCommDeregister) deregister_ = nullptr;
  decltype(&ncclCommWindowRegister) windowRegister_ = nullptr;
  decltype(&ncclCommWindowDeregister) windowDeregister_ = nullptr;
  decltype(&ncclMemAlloc) memAlloc_ = nullptr;
  decltype(&ncclMemFree) memFree_ = nullptr;
  decltype(&ncclGroupStart) groupStart_ = nullptr;
  decltype(&ncclGroupEnd) groupEnd_ = nullptr;
  decltype(&ncclAllReduce) allReduce_ = nullptr;
  decltype(&ncclAllGather) allGather_ = nullptr;
  decltype(&ncclReduceScatter) reduceScatter_ = nullptr;
  decltype(&ncclBroadcast) broadcast_ = nullptr;
  decltype(&ncclReduce) reduce_ = nullptr;
  decltype(&ncclSend) send_ = nullptr;
  decltype(&ncclRecv) recv_ = nullptr;
  // Newer than some libraries; without them, groups of messages do the same.
  decltype(&ncclAlltoAll) allToAll_ = nullptr;
  decltype(&ncclGather) gather_ = nullptr;
  decltype(&ncclScatter) scatter_ = nullptr;
};

}  // namespace tutti::bench::gpu
