// What the fake driver's streams still have to do: each queue in its own order, on a thread that it has only as long as there is something.
//
// Owner: FakeDriver. Any thread. One lock, never held while a callback runs.
// 1. Of a queue, one thing runs at a time, and each sees all that those before it have written.
// 2. A mark is over when everything that was on its queue when it was made has run. Marks outlive queues.
// 3. Nothing is dropped: a queue that is forgotten, and the destructor, let all run to its end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti::driver::cuda {

class FakeQueues {
 public:
  struct Queue;
  using Ref = std::shared_ptr<Queue>;
  using Work = std::function<void()>;
  struct Mark {
    Ref queue;  ///< null: over
    uint64_t number = 0;
  };

  FakeQueues() = default;
  ~FakeQueues() { finish(); }
  FakeQueues(const FakeQueues&) = delete;
  FakeQueues& operator=(const FakeQueues&) = delete;

  Ref make();
  /// Nothing more is put on it.
  void forget(const Ref& queue);
  /// Runs on the queue's thread.
  void put(const Ref& queue, Work work);
  /// The same behind what is there; on the caller's thread, before the return, where there is nothing.
  void putOrRun(const Ref& queue, Work work);
  /// What is put on the queue later waits for the mark.
  void putWait(const Ref& queue, const Mark& mark);

  Mark mark(const Ref& queue) const;
  bool isOver(const Mark& mark) const;
  void await(const Mark& mark) const;
  /// Queues that have something to do.
  size_t working() const;
  void finish();

 private:
  void run(const Ref& queue);
  void start(const Ref& queue);
  void reap();

  mutable std::mutex mutex_;  ///< protects what follows, and all queues
  mutable std::condition_variable changed_;
  std::vector<Ref> queues_;
  size_t working_ = 0;
};

/// Under the lock of its FakeQueues.
struct FakeQueues::Queue {
  struct Item {
    Work work;
    Mark mark;  ///< what to wait for, where there is no work
  };
  std::deque<Item> items;
  uint64_t put = 0;
  uint64_t done = 0;
  bool runs = false;
  bool isForgotten = false;
  std::thread thread;
};

}  // namespace tutti::driver::cuda
