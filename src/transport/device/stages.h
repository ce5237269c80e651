// Stages of calls that copy engines carry out (exec/cuda/copies.h), without a kernel: the caller's stream itself writes words that the
// peers' streams wait for, in host memory that all GPUs address. No multiprocessor is needed, so a call that only moves does not wait
// until a kernel of the caller's leaves one free (docs/decisions/0077).
//
//   Begin      says to every rank that writes to this one "my output may be written, and lies at this place", and waits until every rank
//              that this one writes to has said so, of the same place
//   Meet       says to every rank that this one writes to "all that was on my stream is done", and waits for the same of all that write
//              to this one
//   End        a Meet
//
// Owner: a StageRoom one rank's endpoint, the StageWatch the process. Used by the thread that uses the communicator, but for look().
// 1. What a stream writes was fixed when it was put there, and a graph may be launched any number of times. So a word is zero or says one
//    thing: the peer's stream writes it, and the owner's takes it back when it has seen it. It is written again only behind a word of the
//    owner's that came later: the next Begin behind the meetings of this call, and those of the next behind its Begin. Each meeting of a
//    call has a cell of its own, so a rank that only gives may run ahead of those that take.
// 2. All ranks carry a call out so, or none does: kernels do not know of these words, and nothing is counted.
// 3. A stream looks at no clock and at no abort word. The watch does, a thread of the process that looks at the cells of its ranks: what a
//    rank's stream waits for stands in the cell of the first rank that it waits for, and goes with that cell's word, in one store. Past a
//    deadline, and where the words of two ranks show that they are not in the same call, the watch says what a kernel would (verdict.h) and
//    stops the communicator's devices. Where those are stopped it writes what the streams of its ranks wait for, until they have come to
//    their ends: also those of graphs that are launched later.
// 4. Copies behind a Begin that was ended so are carried out all the same, as behind a kernel that gave up, and the words of meetings are
//    said: the communicator has failed, whatever its calls leave.
// 5. Data goes to a device's memory and words to the host's. A stream writes a word behind a fence for the whole system, which NVLink
//    keeps; between devices on a bus nobody promises that data has arrived when the host's memory has the word, so those have kernels.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/ids.h"
#include "core/status.h"
#include "driver/cuda/driver.h"
#include "exec/cuda/copies.h"
#include "transport/device/page.h"

namespace tutti::transport::device {

/// What a stage of one rank is about.
struct StageCall {
  uint64_t signature = 0;
  uint32_t place = 0;    ///< of this rank's output, as the peers that write there have it
  uint32_t writers = 0;  ///< bits: ranks that write to this one
  uint32_t written = 0;  ///< bits: ranks that this one writes to
  std::optional<uint32_t> target = std::nullopt;  ///< the place of their outputs, where it is another one

  /// What is said of what comes to this rank, with Begin and in meetings: of 22 bits, not zero, the same on both sides.
  uint32_t word() const { return wordOf(place); }
  /// And of what this rank sends.
  uint32_t targetWord() const { return wordOf(target.value_or(place)); }

 private:
  uint32_t wordOf(uint32_t at) const;
};
/// What LaunchBook and verdicts know such a call by: that of no kernel.
constexpr uint64_t stageName(uint32_t word) { return uint64_t{15} << 60 | word; }

/// A rank's words on the page: what its streams do with them, and what the watch sees.
class StageRoom {
 public:
  /// `seen`: the page as the rank's GPU addresses it.
  StageRoom(const Page& page, driver::cuda::DevicePtr seen, Rank rank) : page_(page), seen_(seen), rank_(rank.value) {}

  Status begin(const StageCall& call, driver::cuda::Driver& driver, driver::cuda::Stream stream) const;
  /// The `number`th meeting of the call, from 0, of fewer than kStageMeetings; the last one is its end.
  Status meet(const StageCall& call, int32_t number, driver::cuda::Driver& driver, driver::cuda::Stream stream) const;

  using Clock = std::chrono::steady_clock;
  /// Notes a wait, tells of one that lasts, ends one that has to end. Of one thread at a time. True: a stream was let go on, or is to be,
  /// and may soon wait again.
  bool look(Clock::time_point now);

 private:
  class Ops;
  struct Standing;  ///< a wait of the stream
  struct Ending;
  static std::optional<Standing> standingOf(const Page& page, int32_t rank);
  bool isMessage(int32_t rank, uint32_t word) const;
  std::optional<uint64_t> foreignOf(const Standing& standing, int32_t peer) const;
  Ending awaiting(const Standing& standing, uint32_t lacking) const;
  std::optional<Ending> endingOf(const Standing& standing, uint32_t lacking, uint64_t waitedNs) const;
  void letGo(std::optional<Standing> standing, uint64_t waitedNs) const;
  void leave(exec::cuda::Verdict& verdict, exec::cuda::Verdict::State as, const Standing& standing, const Ending& ending,
             uint64_t waitedNs) const;

  const Page page_;
  const driver::cuda::DevicePtr seen_;
  const int32_t rank_;
  // Of the thread that looks.
  Clock::time_point since_;  ///< when the wait was marked that stands
  bool hasTold_ = false;     ///< of that one
};

/// Looks at the rooms that it has been given, all the time, on a thread that is there as long as it has any.
class StageWatch {
 public:
  /// Goes before the page does, on any thread but the watch's: no look at the room is under way any more when it has gone.
  class Seat {
   public:
    Seat(StageWatch& watch, const StageRoom& room) : watch_(watch), room_(room) {}
    ~Seat() { watch_.remove(*this); }
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

   private:
    friend class StageWatch;
    StageWatch& watch_;
    StageRoom room_;
  };

  StageWatch() = default;
  StageWatch(const StageWatch&) = delete;
  StageWatch& operator=(const StageWatch&) = delete;
  /// SystemError: the system has no thread left.
  Result<std::unique_ptr<Seat>> add(const StageRoom& room);

 private:
  void remove(Seat& seat);
  void run(uint64_t round);

  std::mutex mutex_;  ///< protects what follows, and is held for every look
  std::condition_variable changed_;
  std::vector<Seat*> seats_;
  std::thread thread_;  // as long as there are seats
  uint64_t round_ = 0;  // of the thread that has to run
};

}  // namespace tutti::transport::device
