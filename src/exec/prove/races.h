// Looks for two accesses to one place that nothing orders, by vector clocks over the log of an execution.
//
// Owner: a Prover. One thread.
// 1. Events are ordered by: program order; a message, its sending before its receiving; a slot, its receiving before its next
//    use; an arrival or hand-over, its giving before its taking; the end of an operation, after all lanes of its rank and all
//    readers of its buffers.
// 2. A step's accesses are those to its chunks or cells, and a receiving step reads what was sent or lent to it by reference. One that
//    combines writes to all outputs where results are placed.
// 3. Only places that more than one lane touches are followed, and clocks hold one block of those lanes at a time: memory stays
//    bounded for any number of lanes, at one replay a block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/prove/execute.h"

namespace tutti::exec::prove {

class Races {
 public:
  /// False: failure() names the two steps. `execution` must have ended well.
  bool check(const Network& network, const Case& c, const Execution& execution);

  const std::string& failure() const { return failure_; }
  uint64_t sharedPlaces() const { return numShared_; }

 private:
  using Tick = uint32_t;
  static constexpr int32_t kNone = -1;
  static constexpr size_t kBlock = 256;

  /// What an event makes known to those that follow it: a snapshot of its lane's clock, and its own tick.
  struct Release {
    int32_t snapshot = kNone;
    int32_t lane = kNone;
    Tick tick = 0;
  };
  struct Lane {
    int32_t operation = 0;
    int32_t slice = 0;
    uint32_t step = 0;
    Tick tick = 0;
    int32_t snapshot = kNone;  // of the clock as it is; kNone when the clock has moved since
    int32_t column = kNone;    // in the clocks of this block
  };
  struct Read {
    int32_t lane;
    Tick tick;
    int32_t next;
  };
  struct SharedPlace {
    size_t spot = 0;
    int32_t writer = kNone;
    Tick writeTick = 0;
    int32_t reads = kNone;  // list of Read since the last write
  };
  struct Message {
    Release release;
    int64_t spot[2] = {-1, -1};
  };

  void prepare(bool marking);
  bool replay();
  bool replayStep(int32_t lane);
  void replayEnd(int32_t rank);
  void acquireStep(const FlatStep& step, int32_t lane);
  void releaseStep(const FlatStep& step, int32_t lane);
  bool accessStep(const FlatStep& step, int32_t lane);
  bool readCell(int32_t lane, const FlatStep& step, int32_t writer);
  void drain(int32_t rank, int32_t lane);
  bool read(int32_t lane, size_t spot);
  bool write(int32_t lane, size_t spot);
  bool isBefore(int32_t lane, Tick tick, int32_t later) const;
  bool fail(int32_t lane, size_t spot, bool writes, int32_t other, Tick tick, bool otherWrites);

  Tick* clock(int32_t lane) { return clocks_.data() + static_cast<size_t>(lane) * width_; }
  const Tick* clock(int32_t lane) const { return clocks_.data() + static_cast<size_t>(lane) * width_; }
  void join(int32_t lane, const Release& release);
  Release publish(int32_t lane);
  void drop(Release& release);

  const Network* network_ = nullptr;
  const Execution* execution_ = nullptr;
  Case case_;
  size_t slots_ = 1;
  size_t width_ = 0;      // lanes of the block
  bool marking_ = false;  // the first replay only finds out which lanes touch shared places
  uint64_t numShared_ = 0;
  std::vector<int32_t> sharedOf_;  // spot -> index of SharedPlace
  std::vector<SharedPlace> shared_;
  std::vector<uint8_t> involved_;  // by lane
  std::vector<int32_t> columns_;   // involved lanes
  std::vector<Lane> lanes_;
  std::vector<Tick> clocks_;
  std::vector<Read> reads_;
  int32_t freeReads_ = kNone;
  std::vector<uint32_t> heads_, tails_;      // by pipe
  std::vector<Message> messages_;            // [pipe][slot]
  std::vector<Release> freed_;               // [pipe][slot]
  std::vector<std::vector<Release>> given_;  // by signal: queue
  std::vector<uint32_t> taken_;              // by signal: its head
  std::vector<Tick> drained_;                // [rank][column]: readers of the rank's buffers
  std::vector<int64_t> lent_;                // by cell: the spot to be read instead
  std::vector<Tick> snapshots_;              // [snapshot][column]
  std::vector<int32_t> uses_;                // by snapshot
  std::vector<int32_t> freeSnapshots_;
  std::string failure_;
};

}  // namespace tutti::exec::prove
