// Calls between ncclGroupStart and ncclGroupEnd, and their launch.
//
// Owner: each thread has one. Never shared.
// 1. Nothing is launched before the outermost end(); with an error in between, nothing at all. Where a call could not be made, or launched,
//    for what the process lacks, the peers of all communicators that have calls in the group hear of it (Communicator::forgo).
// 2. Communicators are made first, then windows are settled, then calls are launched, then communicators are ended.
// 3. A communicator that was destroyed meanwhile is noticed, not touched.
// 4. All communicators of a group are blocking, or none is. In the latter case what was launched goes on when end() returns InProgress.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "comm/handle.h"
#include "comm/setup.h"

namespace tutti::comm {

/// A registration of memory on its way.
struct WindowRequest {
  ncclComm* handle = nullptr;
  Communicator* comm = nullptr;
  void* base = nullptr;
  uint64_t bytes = 0;
  bool isSymmetric = false;
  void** result = nullptr;
  transport::device::UserWindows::Ref window = nullptr;  ///< from when the group ends: one that fails before leaves nothing
};

/// A message of a group, like an earlier one that was checked and planned: what was asked for is all that is kept until the group ends.
struct RepeatedMessage {
  Communicator* comm = nullptr;
  ncclComm* handle = nullptr;  ///< its
  CallRequest request;
  bool isPassed = false;
};

class Group {
 public:
  Group() = default;
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  void start();
  /// InvalidUsage without start(). The outermost end() launches and returns the first error of the group.
  Status end();
  /// Ends the group without launching it, and estimates how long its calls would take, in microseconds: -1 without a collective or
  /// with messages. A group of non-blocking communicators is launched after all; nothing is estimated then, as in an inner group.
  Status simulate(std::optional<float>& estimatedUs);
  bool isOpen() const { return depth_ > 0; }
  bool hasFailed() const { return !content_.error.ok(); }
  /// Remembers that a call of this group was refused.
  void fail(const Status& status);
  /// The same for a call on `comm` that cannot be made, which its peers may wait for: see 1. Returns the cause.
  Status forgo(Communicator& comm, Status cause);

  /// Outside a group these run at once. InProgress: it has begun, on a non-blocking communicator.
  Status add(ncclComm* handle, PendingCall call);
  Status add(ncclComm* handle, DeviceCall call);
  /// A short message like an earlier one of a blocking communicator, on no stream, to an open group. False: there was none, or it is to be
  /// made the long way; nothing has been added.
  bool addAgain(ncclComm* handle, Communicator& comm, const CallRequest& request);
  Status add(JoinRequest request);
  Status add(ChildRequest request);
  /// `result` gets the window when all ranks have registered theirs.
  Status add(WindowRequest request);
  Status addEnding(std::function<Status()> ending);

 private:
  void leave();
  /// A communicator on its way.
  struct Creation {
    ncclComm** result = nullptr;
    ncclComm* subject = nullptr;  // whose state it is part of: the new communicator, or the parent
    bool isNew = false;           // the subject is the new one
    bool isKnown = false;         // and the caller has its handle before the group ends
    std::function<std::shared_ptr<Setup>(Communicator&)> makeSetup;
    std::shared_ptr<Setup> setup;  // from the group's end on
  };
  struct Content {
    Status error;
    bool isForgone = false;  // a call is, for a lack
    std::optional<bool> blocking;
    std::vector<Creation> creations;
    std::vector<WindowRequest> windows;
    std::vector<PendingCall> calls;
    std::vector<RepeatedMessage> repeated;  // they come behind `calls`
    std::vector<DeviceCall> deviceCalls;
    std::vector<std::function<Status()>> endings;
    /// Of blocking communicators on host devices, and no error.
    bool hasOnlyCalls() const { return isOfCalls() && !calls.empty() && repeated.empty(); }
    bool hasOnlyRepeated() const { return !repeated.empty() && isOfCalls() && calls.empty(); }
    bool isOfCalls() const {
      return error.ok() && !isForgone && blocking.value_or(true) && creations.empty() && windows.empty() && deviceCalls.empty() &&
             endings.empty();
    }
  };
  /// Groups of a few messages come again and again: the list of the last one is that of the next.
  template <class Calls>
  static void keepRoom(Calls& next, Calls& last) {
    last.clear();
    if (last.capacity() <= Communicator::kMostKept && next.capacity() == 0) next.swap(last);
  }
  /// A group of nothing but those (group_again.cc).
  Status endRepeated();
  /// Repeated messages become calls like all others, behind `calls`. If they cannot, their peers have been told where the cause is a lack.
  static Status spellOut(std::vector<RepeatedMessage>& messages, std::vector<PendingCall>& calls);
  Status admit(bool blocking);
  Status add(Creation creation, bool blocking);
  static Status run(Content& content);
  /// None of them will be made: their peers hear it where the cause is a lack.
  static void forgo(const std::vector<PendingCall>& calls, const Status& cause);
  static void forgo(const std::vector<DeviceCall>& calls, const Status& cause);
  static void forgo(const std::vector<RepeatedMessage>& messages, const Status& cause);
  static Status settle(std::vector<WindowRequest> windows);
  static Status waitForAll(const std::vector<WindowRequest>& windows);
  static Status launch(std::vector<PendingCall>& calls, bool blocking);
  static Status launchOfOne(std::vector<PendingCall>& calls);
  static Status launchOfMany(std::vector<PendingCall>& calls);
  static Status launch(std::vector<DeviceCall>& calls, bool blocking);
  static Status launchTogether(std::vector<DeviceCall>& calls);
  static Status create(std::vector<Creation> creations, bool blocking);
  static Status startAll(std::vector<Creation>& creations);
  static Status waitForAll(std::vector<Creation>& creations);
  static Status undo(std::vector<Creation>& creations, Status cause);

  int32_t depth_ = 0;
  Content content_;
};

}  // namespace tutti::comm
