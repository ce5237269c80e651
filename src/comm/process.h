// All process-wide mutable state of the library: handles, meetings of ranks, host streams, ncclMemAlloc memory, and what a
// thread has chosen. (The log, the parsed environment and the plugins that are loaded are the documented exceptions: observe/log.cc,
// config/params.cc, transport/plugin/library.cc.)
//
// Owner: itself; made at first use and never destroyed, so that threads which outlive main() stay safe. Any thread may call.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <type_traits>

#include "bootstrap/service.h"
#include "comm/constants.h"
#include "comm/devices.h"
#include "comm/founding.h"
#include "comm/group.h"
#include "comm/handle.h"
#include "comm/layouts.h"
#include "comm/networks.h"
#include "comm/shared.h"
#include "exec/host/stream.h"
#include "memory/host_allocator.h"
#include "tune/plugin/tuner.h"

namespace tutti::comm {

/// Live host streams by the value that stands for them in the API.
class StreamTable {
 public:
  Result<void*> create();
  /// Null when `handle` is no live stream.
  std::shared_ptr<exec::host::Stream> find(void* handle) const;
  /// Takes it out of the table; null when it is not there.
  std::shared_ptr<exec::host::Stream> remove(void* handle);

 private:
  mutable std::mutex mutex_;
  std::map<void*, std::shared_ptr<exec::host::Stream>> live_;
};

/// Communicators that are being destroyed, so that an abort can end what they still wait for when they have no handle any more. Any
/// thread.
class Departures {
 public:
  /// For as long as it lives, `comm` is one; it is not used after the constructor. To be made while the handle is live: who finds it
  /// retired then finds this.
  class Entry {
   public:
    Entry(Departures& of, ncclComm* handle, const Communicator& comm);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    Departures& of_;
    uint64_t number_ = 0;
  };
  /// What that handle stood for gives up, if it is one.
  void abort(ncclComm* handle);

 private:
  struct Departing {
    ncclComm* handle = nullptr;  // which may be another's by now: for a long while it is not
    std::shared_ptr<Shared> shared;
    Rank rank;
  };
  std::mutex mutex_;
  std::map<uint64_t, Departing> all_;
  uint64_t made_ = 0;
};

struct Process {
  Process();
  /// Warns, once in the process, of variables that are set and have no effect.
  void tellEffects();
  HandleTable handles;
  Departures departures;
  bootstrap::Service bootstrap;
  Foundations foundations{[this] { return memory.shareTable(); },
                          [this](const Foundations::Wish& w) { return networks.engine(w.network, w.use); },
                          [this](const transport::net::Network& network, bool onGpu) { return layouts.siteOf(network, onGpu); }};
  Networks networks;
  StreamTable streams;
  std::mutex launchOrder;  ///< held while a launch is queued on its streams
  RetiredWorkers retiredWorkers;
  Devices devices;
  Layouts layouts{devices};
  tune::plugin::Libraries tuners;
  Constants constants;
  memory::HostAllocator memory;

 private:
  std::once_flag effects_;
};

Process& process();

/// What a process was forked from while that one had communicators: the parent's id, and how many. Neither changes.
struct Fork {
  int32_t parent = 0;  ///< 0: nothing of the kind
  size_t communicators = 0;
};
/// Any thread; costs a load.
const Fork& forked();
/// InvalidUsage in such a process: threads, connections and CUDA do not survive a fork.
Status refuseForked();

/// What belongs to one calling thread.
struct ThreadState {
  ThreadState() = default;
  ~ThreadState();
  ThreadState(const ThreadState&) = delete;
  ThreadState& operator=(const ThreadState&) = delete;

  Group group;
  int hostDevice = -1;  ///< -1: never chosen
  Visitor* visitor = nullptr;  ///< from its first lone call or group of calls on
};

/// What each call looks at, in one object: finding a thread-local one takes a call of the linker's. No object of the language with a
/// destructor, whose memory must not be looked at afterwards: destructors of the program's thread-local objects may call later.
struct ThreadWords {
  /// The thread's visitor, where a call may be a lone one that only repeats the one before: null before the thread's first, in a group, and
  /// in a process that was forked.
  Visitor* lone = nullptr;
  Visitor* group = nullptr;      ///< the same where the thread has a group open, to which the call is added
  ThreadState* state = nullptr;  ///< null: not made, or ended
};
static_assert(std::is_trivially_destructible_v<ThreadWords>);
extern constinit thread_local ThreadWords threadWords;

ThreadState& makeThreadState();
/// Made when first asked for, ended with the thread. Thread-local objects of the program that are destroyed after it get a new one.
inline ThreadState& thisThread() { return threadWords.state != nullptr ? *threadWords.state : makeThreadState(); }

/// Of a thread that makes a lone call, or has ended a group of calls: from now on it has one.
void noteLoneCall();

}  // namespace tutti::comm
