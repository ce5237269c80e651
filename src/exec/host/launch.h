// Works that run together on one thread, placed on the streams that they were issued on.
//
// Owner: shared by the streams it waits on and by the thread that runs it.
// 1. It starts when every stream has reached it, and no stream goes on before it has ended: work issued on several streams in
//    one group is one piece of work on all of them.
// 2. A launch that waits for streams on the caller's thread ends when one of its communicators fails; all its works fail then.
// 3. With `callerRuns` (a NULL stream took part) it runs inside submit(); otherwise on the stream that reaches it last.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "exec/host/drive.h"
#include "exec/host/stream.h"

namespace tutti::exec::host {

class Launch : public std::enable_shared_from_this<Launch> {
 public:
  Launch(std::vector<std::unique_ptr<Work>> works, int32_t spins) : works_(std::move(works)), spins_(spins) {}

  /// Queues itself on the streams and, with `callerRuns`, waits for them and runs. The error of a launch that runs later is
  /// found in the communicators' latches and on its streams. `order` is the same for all launches that may share streams.
  Status submit(std::vector<std::shared_ptr<Stream>> streams, bool callerRuns, std::mutex& order);

 private:
  Status queue(bool callerRuns, std::mutex& order);
  void reach(bool mayRun) noexcept;
  Status run(std::unique_lock<std::mutex>& lock);
  Status runWorks();
  bool isCondemned() const;
  Status cancel();
  void finish();

  std::vector<std::unique_ptr<Work>> works_;
  int32_t spins_;
  std::vector<std::shared_ptr<Stream>> streams_;  // released when it has run
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t awaited_ = 0;  // streams that have not reached this launch yet
  bool done_ = false;   // has run, or never will
};

}  // namespace tutti::exec::host
