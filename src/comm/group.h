// Calls between ncclGroupStart and ncclGroupEnd, and their launch.
//
// Owner: each thread has one. Never shared.
// 1. Nothing is launched before the outermost end(); with an error in between, nothing at all.
// 2. Communicators are made first, then calls are launched, then communicators are ended.
// 3. A communicator that was destroyed meanwhile is noticed, not touched.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/handle.h"
#include "comm/rendezvous.h"

namespace tutti::comm {

/// A rank that is to join a communicator.
struct JoinRequest {
  ncclComm** result = nullptr;
  UniqueIdBytes id{};
  int32_t ranks = 0;
  Rank rank;
  int32_t device = 0;
  Config config;
  const char* function = "";
};

class Group {
 public:
  void start() { ++depth_; }
  /// InvalidUsage without start(). The outermost end() launches and returns the first error of the group.
  Status end();
  bool isOpen() const { return depth_ > 0; }
  bool hasFailed() const { return !error_.ok(); }
  /// Ends one level without launching; the outermost forgets all calls.
  void discard();

  /// Remembers that a call of this group was refused.
  void fail(const Status& status);

  /// Outside a group these run at once.
  Status add(ncclComm* handle, PendingCall call);
  Status add(JoinRequest request);
  Status addEnding(std::function<Status()> ending);

 private:
  struct Entry {
    ncclComm* handle;
    PendingCall call;
  };
  static Status launch(std::vector<Entry> entries);
  static Status join(std::vector<JoinRequest> requests);

  int32_t depth_ = 0;
  Status error_;
  std::vector<JoinRequest> joins_;
  std::vector<Entry> calls_;
  std::vector<std::function<Status()>> endings_;
};

}  // namespace tutti::comm
