// Runs all lanes of all ranks on symbolic values, with bounded pipes, until they end, fail or wait for ever.
//
// Owner: a Prover. One thread.
// 1. A step is atomic: it runs when all its messages are there and all its slots are free, so it holds what it receives until it
//    has sent. One that runs in parts can do no more than this one.
// 2. Lanes of a rank begin the next operation together, after all have ended and no peer reads the rank's buffers any more.
// 3. The log of a run is one order of its steps that agrees with every wait; races.h works from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/prove/collective.h"
#include "exec/prove/network.h"

namespace tutti::exec::prove {

/// Where a lane is, or was.
struct Where {
  int32_t lane = 0;
  int32_t operation = 0;
  int32_t slice = 0;
  uint32_t step = 0;
};

/// One chunk and slice of a buffer, or one cell of a window.
struct Spot {
  Value value;
  int32_t operation = -1;  ///< cells: which round and slice of which operation was stored
  int32_t slice = -1;
  int32_t round = -1;
  uint32_t sizeClass = 0;    ///< cells
  int64_t lent = -1;         ///< cells: the spot that the reader may read instead
  uint32_t lentVersion = 0;  ///< of it when it was stored
  uint32_t version = 0;  ///< writes so far
  int32_t writer = -1;   ///< lane of the last one
  uint32_t writerTick = 0;
  int32_t reader = -1;    ///< the only lane that has read it; kManyReaders
  bool isShared = false;  ///< two lanes touch it, and not merely through one message: races.h checks it
};
inline constexpr int32_t kManyReaders = -2;

/// Log entries: a lane's next step, or the end of an operation of a rank.
inline constexpr uint32_t kEndOfOperation = 1u << 31;

class Execution {
 public:
  /// False: failure() says what is wrong. `classes[p][chunk]` are the size classes of program p.
  bool run(Network& network, const Case& c, const std::vector<std::vector<uint32_t>>& classes);

  /// Whether what ranks combine in an operation is written to all outputs at once.
  bool places(int32_t operation) const { return case_.places && network_->program(operation).subject->traits.places; }

  const std::string& failure() const { return failure_; }
  const std::vector<uint32_t>& log() const { return log_; }
  const std::vector<Spot>& spots() const { return spots_; }
  uint64_t messages() const { return messages_; }
  int32_t slotsUsed() const { return slotsUsed_; }

  // Spots are numbered buffers first, then cells.
  size_t spotOf(int32_t place, int32_t slice) const { return static_cast<size_t>(place) * slices_ + static_cast<size_t>(slice); }
  size_t cellOf(int32_t window, int32_t writer, int32_t operation, int32_t slice, int32_t round) const;
  /// Whether a spot is a cell, and of which number.
  int64_t cellNumber(size_t spot) const { return static_cast<int64_t>(spot) - static_cast<int64_t>(firstCell_); }
  size_t numCells() const { return spots_.size() - firstCell_; }
  std::string spotName(size_t spot) const;

  /// The step at which a lane's clock showed `tick`.
  Where whereAt(int32_t lane, uint32_t tick) const;
  std::string describe(const Where& where) const;

 private:
  struct Message {
    Value value;
    int32_t operation = 0;
    int32_t slice = 0;
    uint32_t sizeClass = 0;
    uint32_t tick = 0;             // of the sending lane
    int64_t spot[2] = {-1, -1};    // what the receiver may read in the sender's buffers
    uint32_t version[2] = {0, 0};  // of it when it was sent
  };
  struct PipeState {
    uint32_t head = 0;  // messages received
    uint32_t tail = 0;  // messages sent
  };
  struct LaneState {
    int32_t operation = 0;
    int32_t slice = 0;
    uint32_t step = 0;
    uint32_t tick = 0;
    bool isQueued = false;
    bool isAtEnd = false;  // of its operation
  };

  // execute.cc: scheduling
  void prepare();
  void wake(int32_t lane);
  bool advance(int32_t lane);
  bool isReady(const FlatStep& step) const;
  void endLane(int32_t lane);
  void endOperation(int32_t rank);
  bool perform(int32_t lane, const FlatStep& step);
  bool performPipe(int32_t lane, const FlatStep& step);
  void push(int32_t lane, const FlatStep& step, const Value& value);
  Message& messageOf(int32_t pipe, uint32_t number) { return messagesInFlight_[static_cast<size_t>(pipe) * slots_ + number % slots_]; }
  Where here(int32_t lane) const;
  bool isFinished() const;

  // execute_values.cc: what the steps do to values
  bool readMessage(int32_t lane, const FlatStep& step, int32_t pipe, Value& value);
  bool combine(int32_t lane, const FlatStep& step, const Value* received, Value& result);
  bool load(int32_t lane, const FlatStep& step, Value& value);
  bool storeOutput(int32_t lane, const FlatStep& step, Value value);
  bool storeCell(int32_t lane, const FlatStep& step);
  bool loadCell(int32_t lane, const FlatStep& step);
  bool reduceCells(int32_t lane, const FlatStep& step);
  bool placeResult(int32_t lane, const FlatStep& step, const Value& result);
  Spot* readCell(int32_t lane, const FlatStep& step, int32_t writer);
  uint32_t sizeClassOf(int32_t operation, int32_t chunk) const {
    return (*classes_)[static_cast<size_t>(operation) % classes_->size()][static_cast<size_t>(chunk)];
  }
  void endReference(int32_t rank);
  void noteRead(int32_t lane, Spot& spot, int32_t orderedAfter);
  void noteWrite(int32_t lane, Spot& spot);
  bool fail(int32_t lane, std::string_view text);

  // explain.cc: why it failed
  std::string difference(const Value& got, const Value& expected) const;
  std::string describe(const Value& value) const;
  void explainStop();
  bool explainLeftovers();  // true: there are some
  std::string missingOutput(int32_t rank, int32_t operation) const;
  std::string explainWait(int32_t lane, int32_t& waitsFor) const;

  Network* network_ = nullptr;
  const std::vector<std::vector<uint32_t>>* classes_ = nullptr;
  Case case_;
  size_t slices_ = 1;
  size_t slots_ = 1;
  std::vector<PipeState> pipes_;
  std::vector<Message> messagesInFlight_;  // [pipe][slot]
  std::vector<uint32_t> signals_;          // given and not yet taken
  std::vector<LaneState> lanes_;
  std::vector<int32_t> lanesAtEnd_;     // by rank
  std::vector<int32_t> referencesOut_;  // by rank: messages by reference that are not received
  std::vector<Spot> spots_;
  std::vector<int32_t> epochBase_;  // by operation: window rounds before it
  size_t firstCell_ = 0;            // the spots from here on are cells
  std::vector<int32_t> queue_;
  std::vector<uint32_t> log_;
  std::vector<Expr> operands_;
  std::vector<Value> received_;
  uint64_t messages_ = 0;
  int32_t slotsUsed_ = 0;
  std::string failure_;
};

}  // namespace tutti::exec::prove
