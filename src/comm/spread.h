// News for all hosts of a communicator: who has some tells its K = ceil(log2(hosts)) neighbours in the circle (circle.h), and whoever hears
// them first tells its own. A host sends K messages for a piece, speaks with 2 K others, and K hops reach everybody.
//
// Owner: the courier. Any thread says; what comes is heard on the bootstrap's thread.
// 1. A piece goes to the first process of a host that can be reached, and is passed on once, known again by topic, origin and number. It
//    brings its circle along: a process passes on what is of a communicator that it does not have yet, or no more.
// 2. Nothing overtakes what its origin has said or heard before about its topic and to the same circle, as long as no host goes meanwhile.
// 3. A neighbour that is known to be gone is passed over for the next: any number may be. Of those that are dead or stopped without anybody
//    knowing, any K - 1 hide nothing from anybody; more of them rarely do. There is no other way round.
// 4. What a process says last goes to the K before it as well, which then know that it has gone.
// 5. A neighbour gets one message per pace() with all that has come up meanwhile; the first at once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "bootstrap/mesh.h"
#include "bootstrap/roster.h"
#include "comm/circle.h"
#include "core/clock.h"

namespace tutti::comm {

class Spread : public std::enable_shared_from_this<Spread> {
 public:
  struct Piece {
    uint64_t topic;
    int32_t origin;  ///< a process
    std::span<const std::byte> body;
  };
  class Audience {
   public:
    virtual ~Audience() = default;
    /// Whether the other hosts may not know it yet. Asked before take().
    virtual bool isWorthPassingOn(const Piece& piece) = 0;
    /// False: it is for another process of this host, the next that takes part.
    virtual bool take(const Piece& piece) = 0;

   protected:
    Audience() = default;
    Audience(const Audience&) = default;
    Audience& operator=(const Audience&) = default;
  };

  /// `roster` outlives it. Each message begins with `prefix`.
  Spread(const bootstrap::Roster& roster, std::vector<std::byte> prefix, Clock& clock);

  enum class Way : uint8_t {
    Along,   ///< from neighbour to neighbour
    Last,    ///< the process says nothing more
    Direct,  ///< to everybody at once where that is no more than kMostDirect processes: it must not depend on who has left in peace
             ///< meanwhile
  };
  static constexpr size_t kMostDirect = 64;
  /// To all hosts of the circle but its own.
  void say(uint64_t topic, const Circle& circle, std::span<const std::byte> body, Way way = Way::Along);
  /// What came from a process, without the prefix. What makes no sense is passed over.
  void hear(int32_t from, std::span<const std::byte> batch, Audience& audience);
  /// The topic is over here. What is said about it elsewhere is still passed on, unless kMostOver others have ended since.
  void end(uint64_t topic);
  /// Sends what waits for its time.
  void flush();

  std::chrono::milliseconds pace() const { return pace_; }
  static constexpr size_t kMostOver = 256;

 private:
  /// Which pieces of an origin were heard: the latest number, and a bit for each of the 64 before it.
  struct Heard {
    uint64_t latest = 0;
    uint64_t before = 0;
    bool add(uint64_t number);
  };
  struct Topic {
    uint64_t said = 0;
    std::unordered_map<int32_t, Heard> heard;  // by origin
  };
  struct Head;
  using Batches = std::map<int32_t, std::vector<std::byte>>;

  bool isNew(uint64_t topic, int32_t origin, uint64_t number);
  void handOn(const Circle& circle, std::span<const int32_t> places, std::span<const std::byte> piece);
  void handToNextHere(const Circle& circle, std::span<const std::byte> piece);
  int32_t reachableAt(const Circle& circle, int32_t place) const;
  void add(int32_t process, std::span<const std::byte> piece);
  void sendOrWait();
  void sendAll();

  const bootstrap::Roster& roster_;
  const std::vector<std::byte> prefix_;
  Clock& clock_;
  const Circle everybody_;
  const std::chrono::milliseconds pace_;
  std::mutex mutex_;  // under it, all that follows; held while the mesh is told, so that pieces stay in order
  std::map<uint64_t, Topic> topics_;
  std::deque<uint64_t> over_;      // topics that have ended, the oldest first
  std::set<uint64_t> forgotten_;   // those before them
  Batches waiting_;            // by process
  Nanoseconds sent_{0};
  bool isAwaited_ = false;  // a flush is on its way
};

}  // namespace tutti::comm
