// The messages of the set-up, as values and as bytes.
//
// Values; no state; any thread.
// 1. decode() accepts exactly what encode() writes and nothing that breaks a promise of the types below: ranks, indices and sizes are
//    in range, no member is without a rank, every rank is there once. Hostile bytes give an empty result, never more.
// 2. Tables are linear in ranks and members, in space and in time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/address.h"
#include "bootstrap/roster.h"
#include "bootstrap/unique_id.h"
#include "core/status.h"

namespace tutti::bootstrap {

inline constexpr int32_t kMostRanks = 1 << 18;
inline constexpr size_t kMostAddresses = 16;
inline constexpr size_t kMostNameBytes = 255;
inline constexpr size_t kMostErrorBytes = 4096;

/// What a frame is.
enum class Kind : uint8_t {
  Enroll = 1,    ///< process → root: a rank
  Part = 2,      ///< root → first root: all its ranks
  Welcome = 3,   ///< root → process: registered
  Trouble = 4,   ///< both ways: it is over, and why
  Table = 5,     ///< first root → first process, and down the tree
  Ready = 6,     ///< process → root, root → first root
  Go = 7,        ///< first root → root → process
  Intro = 8,     ///< first frame on a connection of the mesh: who speaks; empty: the answer to it
  Data = 9,      ///< a message of the mesh's user
  Round = 10,    ///< part of an all-gather
  Loss = 11,     ///< a process is gone, or an all-gather failed: passed on to everybody
  Bye = 12,      ///< the sender has ended its part of the communicator
  Missing = 13,  ///< root → process: a text that says whom it waits for
};

/// A process as it presents itself.
struct Member {
  uint64_t token = 0;
  int32_t pid = 0;
  uint64_t hostIdentity = 0;
  std::string hostName;
  std::vector<Address> addresses;
  friend bool operator==(const Member&, const Member&) = default;
};

/// How a communicator is spread over roots.
struct Division {
  int32_t ranks = 0;
  int32_t ids = 1;    ///< how many roots there are
  int32_t index = 0;  ///< which of them this is
  friend bool operator==(const Division&, const Division&) = default;
};

struct Enroll {
  Division division;
  UniqueIdBytes firstId{};  ///< where the other roots bring their parts; zeros when there is one root
  Member member;
  int32_t rank = 0;
  Note note{};
  int64_t setUpMs = 0;  ///< how long the set-up may take; what rank 0 says counts
};

/// Some ranks of a communicator, and the processes that they are in.
struct Part {
  struct Entry {
    int32_t rank = 0;
    int32_t member = 0;  ///< index into `members`
    Note note{};
  };
  Division division;
  std::vector<Member> members;
  std::vector<Entry> entries;
};

/// All of a communicator.
struct Table {
  uint64_t number = 0;            ///< random
  Secret key{};                   ///< of the mesh; random
  int64_t setUpMs = 0;            ///< how long the set-up may take
  std::vector<Member> members;    ///< in the order of their first rank
  std::vector<int32_t> memberOf;  ///< of each rank
  std::vector<Note> notes;        ///< of each rank
};

struct Welcome {
  int32_t pid = 0;  ///< of the root's process
  std::string hostName;
  int32_t rank = -1;  ///< one of the root's process, if any has joined yet
};

std::vector<std::byte> encode(const Enroll& message);
std::vector<std::byte> encode(const Part& message);
std::vector<std::byte> encode(const Table& message);
std::vector<std::byte> encode(const Welcome& message);
std::vector<std::byte> encode(const Status& trouble);

std::optional<Enroll> decodeEnroll(std::span<const std::byte> bytes);
std::optional<Part> decodePart(std::span<const std::byte> bytes);
std::optional<Table> decodeTable(std::span<const std::byte> bytes);
std::optional<Welcome> decodeWelcome(std::span<const std::byte> bytes);
/// Never Ok: bytes that say nothing are an error of their own.
Status decodeTrouble(std::span<const std::byte> bytes);

}  // namespace tutti::bootstrap
