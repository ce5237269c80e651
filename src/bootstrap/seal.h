// The mathematics of an authenticated connection: who proves what, and how a frame is sealed. No input, no output, no clock.
//
// Owner: the caller; values. Not shared between threads.
// 1. Greeting (connector, 48 bytes in clear) → Answer (acceptor: its nonce and its proof) → Proof (connector). Each proof is a keyed
//    hash of the whole greeting, both nonces and the side that speaks: it cannot be reflected, replayed or moved to another purpose.
// 2. Nothing of the greeting is believed before the proof: purpose and topic only choose the secret that is tried.
// 3. Afterwards each direction has a key of its own, made of the secret and both nonces; a frame is encrypted and authenticated with
//    its number, so that frames cannot be changed, dropped, repeated, reordered or read. Why: docs/decisions/0010-bootstrap.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bootstrap/unique_id.h"
#include "core/status.h"

namespace tutti::bootstrap {

/// What a connection is for; part of what is proved.
enum class Purpose : uint8_t {
  Root = 1,   ///< a process, or another root, registers with a root; topic: hash of the id
  Tree = 2,   ///< hands the table on; topic: hash of the first id
  Mesh = 3,   ///< messages of a communicator; topic: its number
  Share = 4,  ///< hands a descriptor over within a host; topic: the communicator's number
};

using Nonce = std::array<uint8_t, 32>;
using Proof = std::array<uint8_t, 32>;

struct Greeting {
  static constexpr size_t kBytes = 48;
  Purpose purpose = Purpose::Root;
  uint64_t topic = 0;
  Nonce nonce{};

  std::array<std::byte, kBytes> encode() const;
  /// Nothing when it is no greeting of this protocol.
  static std::optional<Greeting> decode(std::span<const std::byte, kBytes> bytes);
};

inline constexpr size_t kAnswerBytes = sizeof(Nonce) + sizeof(Proof);

enum class Side : uint8_t { Connector = 1, Acceptor = 2 };

/// The two keys of a connection, as this side uses them.
struct SessionKeys {
  Secret sends{};
  Secret receives{};
};

/// Random bytes and constant-time comparison need the library to be ready; costs nothing after the first call. Any thread.
Status prepareCrypto();
void fillRandom(std::span<uint8_t> bytes);
uint64_t randomNumber();

Proof prove(const Secret& secret, Side speaker, const Greeting& greeting, const Nonce& acceptorNonce);
/// In constant time.
bool equal(const Proof& a, const Proof& b);
SessionKeys deriveKeys(const Secret& secret, Side own, const Greeting& greeting, const Nonce& acceptorNonce);
/// 32 bytes that depend on all of `secret`, `purpose` and `data`.
Secret derive(const Secret& secret, std::string_view purpose, std::span<const std::byte> data);
/// What a connection to one process among those that share `secret` is proved with: where its address is somebody else's too, as those of
/// bridges often are, another process of the job may answer, or the very one that calls.
Secret secretOf(uint64_t token, const Secret& secret);
/// A number that says nothing about `data`; the same everywhere.
uint64_t hashNumber(std::string_view purpose, std::span<const std::byte> data);

/// Bytes that a frame has beyond its payload: length, kind and authenticator.
inline constexpr size_t kLengthBytes = 4;
inline constexpr size_t kTagBytes = 16;
inline constexpr size_t kMostFrameBytes = size_t{64} << 20;  ///< of what follows the length

/// Makes the frames of one direction.
class Sealer {
 public:
  explicit Sealer(const Secret& key) : key_(key) {}
  /// Length, then the sealed kind and payload.
  std::vector<std::byte> seal(uint8_t kind, std::span<const std::byte> payload);

 private:
  Secret key_;
  uint64_t number_ = 0;
};

/// Reads the frames of one direction.
class Opener {
 public:
  struct Frame {
    uint8_t kind = 0;
    std::span<const std::byte> payload;  ///< within the bytes given
  };

  explicit Opener(const Secret& key) : key_(key) {}
  /// What follows the length, or nothing when no frame can have it.
  static std::optional<size_t> lengthOf(std::span<const std::byte, kLengthBytes> head);
  /// Opens `sealed`, what followed the length, in place. Nothing when it was not made by the other side's Sealer as its next frame.
  std::optional<Frame> open(std::span<std::byte> sealed);

 private:
  Secret key_;
  uint64_t number_ = 0;
};

}  // namespace tutti::bootstrap
