// What the two sides say before the first message, and the handle that lets them: pure functions of bytes.
//
// No state; any thread. The connecting side says Hello, the listening side answers with a Challenge that proves it knows the key of the
// handle, the connecting side proves the same. Nothing of a Hello is believed before its proof is checked.
// 1. A proof is a MAC (HMAC-SHA-512-256) by the 32-byte key of the listener over the whole Hello and both nonces; the two sides' proofs
//    carry different labels, so that none can be sent back, and fresh nonces, so that none can be used twice.
// 2. Whoever answers at an address and does not know the key is somebody else: the next address is tried.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "core/status.h"
#include "transport/net/network.h"
#include "transport/socket/address.h"
#include "transport/socket/settings.h"

namespace tutti::transport::socket {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

using Key = std::array<uint8_t, 32>;
using Nonce = std::array<uint8_t, 32>;
using Proof = std::array<uint8_t, 32>;
using ConnectionId = std::array<uint8_t, 16>;

inline constexpr uint64_t kHelloMagic = 0x3174'6974'7475'7401;

struct Hello {
  uint64_t magic = kHelloMagic;
  uint64_t listenId = 0;
  ConnectionId connection{};  ///< equal for the streams of one connection
  uint16_t stream = 0;        ///< which of them this is
  uint16_t streams = 0;
  uint32_t reserved = 0;
  Nonce nonce{};
};
static_assert(sizeof(Hello) == 72 && std::is_trivially_copyable_v<Hello>);

struct Challenge {
  Nonce nonce{};
  Proof proof{};
};
static_assert(sizeof(Challenge) == 64);

/// Must succeed before anything below is used. Any number of times, from any thread.
Status setUpCrypto();
void fillRandom(std::span<uint8_t> bytes);
/// Wipes a key.
void forget(Key& key);

Proof proveListener(const Key& key, const Hello& hello, const Nonce& nonce);
Proof proveConnector(const Key& key, const Hello& hello, const Nonce& nonce);
/// In a time that does not depend on the values.
bool equal(const Proof& a, const Proof& b);

/// What a handle says.
struct Invitation {
  uint64_t listenId = 0;
  Key key{};
  Streams streams;
  std::vector<Address> addresses;  ///< with ports, best first
};

/// As many addresses as fit: 11 of IPv4 or 4 of IPv6.
net::Handle encode(const Invitation& invitation);
/// InvalidArgument when the bytes are none of ours.
Result<Invitation> decode(const net::Handle& handle);

}  // namespace tutti::transport::socket
