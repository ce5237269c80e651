#include "transport/socket/handshake.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>

namespace tutti::transport::socket {
namespace {

static_assert(crypto_auth_BYTES == sizeof(Proof) && crypto_auth_KEYBYTES == sizeof(Key));

constexpr uint32_t kHandleMagic = 0x7475'7401;
constexpr size_t kAddressBytes = 80;

struct HandleWire {
  uint32_t magic;
  uint8_t threads;
  uint8_t socketsPerThread;
  uint8_t addresses;
  uint8_t reserved;
  uint64_t listenId;
  Key key;
  std::array<uint8_t, kAddressBytes> room;
};
static_assert(sizeof(HandleWire) == net::kHandleBytes && std::is_trivially_copyable_v<HandleWire>);

Proof prove(uint8_t label, const Key& key, const Hello& hello, const Nonce& nonce) {
  std::array<uint8_t, 1 + sizeof(Hello) + sizeof(Nonce)> text;
  text[0] = label;
  std::memcpy(text.data() + 1, &hello, sizeof hello);
  std::memcpy(text.data() + 1 + sizeof hello, nonce.data(), nonce.size());
  Proof proof;
  crypto_auth(proof.data(), text.data(), text.size(), key.data());
  return proof;
}

/// An address as: family (4 or 6), port, IP.
size_t sizeOf(uint8_t family) { return family == 4 ? 1 + 2 + 4 : 1 + 2 + 16; }

}  // namespace

Status setUpCrypto() {
  if (sodium_init() < 0) return error(Code::SystemError, "libsodium cannot be set up: the system gives no random numbers");
  return Status();
}

void fillRandom(std::span<uint8_t> bytes) { randombytes_buf(bytes.data(), bytes.size()); }
void forget(Key& key) { sodium_memzero(key.data(), key.size()); }

Proof proveListener(const Key& key, const Hello& hello, const Nonce& nonce) { return prove('L', key, hello, nonce); }
Proof proveConnector(const Key& key, const Hello& hello, const Nonce& nonce) { return prove('C', key, hello, nonce); }
bool equal(const Proof& a, const Proof& b) { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

net::Handle encode(const Invitation& invitation) {
  HandleWire wire{};
  wire.magic = kHandleMagic;
  wire.threads = static_cast<uint8_t>(invitation.streams.threads);
  wire.socketsPerThread = static_cast<uint8_t>(invitation.streams.socketsPerThread);
  wire.listenId = invitation.listenId;
  wire.key = invitation.key;
  size_t used = 0;
  for (const Address& address : invitation.addresses) {
    const uint8_t family = address.isV4() ? 4 : 6;
    if (used + sizeOf(family) > wire.room.size()) break;
    uint8_t* at = wire.room.data() + used;
    const uint16_t port = address.port();
    at[0] = family;
    std::memcpy(at + 1, &port, sizeof port);
    if (family == 4) {
      std::memcpy(at + 3, &address.ip4(), 4);
    } else {
      std::memcpy(at + 3, &address.ip6(), 16);
    }
    used += sizeOf(family);
    ++wire.addresses;
  }
  net::Handle handle;
  std::memcpy(handle.bytes.data(), &wire, sizeof wire);
  return handle;
}

Result<Invitation> decode(const net::Handle& handle) {
  HandleWire wire;
  std::memcpy(&wire, handle.bytes.data(), sizeof wire);
  if (wire.magic != kHandleMagic) return fail(Code::InvalidArgument, "a handle of another network, or of another version of it");
  Invitation invitation;
  invitation.streams = {.threads = wire.threads, .socketsPerThread = wire.socketsPerThread};
  invitation.listenId = wire.listenId;
  invitation.key = wire.key;
  if (invitation.streams.threads > 16 || invitation.streams.data() > 64)
    return fail(Code::InvalidArgument, "a handle asks for too many sockets");
  size_t used = 0;
  for (int i = 0; i < wire.addresses; ++i) {
    if (used >= wire.room.size()) return fail(Code::InvalidArgument, "a handle is cut short");
    const uint8_t* at = wire.room.data() + used;
    if ((at[0] != 4 && at[0] != 6) || used + sizeOf(at[0]) > wire.room.size()) return fail(Code::InvalidArgument, "a handle is garbled");
    uint16_t port = 0;
    std::memcpy(&port, at + 1, sizeof port);
    if (at[0] == 4) {
      in_addr ip;
      std::memcpy(&ip, at + 3, sizeof ip);
      invitation.addresses.push_back(Address::v4(ip, port));
    } else {
      in6_addr ip;
      std::memcpy(&ip, at + 3, sizeof ip);
      invitation.addresses.push_back(Address::v6(ip, port));
    }
    used += sizeOf(at[0]);
  }
  if (invitation.addresses.empty()) return fail(Code::InvalidArgument, "a handle has no address");
  return invitation;
}

}  // namespace tutti::transport::socket
