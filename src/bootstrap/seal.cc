#include "bootstrap/seal.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "bootstrap/wire.h"

namespace tutti::bootstrap {
namespace {

constexpr uint32_t kMagic = 0x31627474;  // "ttb1": this protocol, in this version

static_assert(sizeof(Secret) == crypto_aead_chacha20poly1305_IETF_KEYBYTES);
static_assert(sizeof(Secret) == crypto_generichash_KEYBYTES && sizeof(Proof) == crypto_generichash_BYTES);
static_assert(kTagBytes == crypto_aead_chacha20poly1305_IETF_ABYTES);

using FrameNonce = std::array<uint8_t, crypto_aead_chacha20poly1305_IETF_NPUBBYTES>;

/// The number of a frame is its nonce: a key serves one direction of one connection, so that none comes twice.
FrameNonce nonceOf(uint64_t number) {
  FrameNonce nonce{};
  for (size_t i = 0; i < sizeof number; ++i) nonce[i] = static_cast<uint8_t>(number >> (8 * i));
  return nonce;
}

const uint8_t* bytesOf(std::span<const std::byte> bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }

/// The keyed hash of all that a connection is about, under a word for its use.
Secret hashOfConnection(const Secret& secret, std::string_view use, const Greeting& greeting, const Nonce& acceptorNonce) {
  Writer writer;
  writer.raw(greeting.encode());
  writer.raw(acceptorNonce);
  return derive(secret, use, writer.view());
}

}  // namespace

std::array<std::byte, Greeting::kBytes> Greeting::encode() const {
  Writer writer;
  writer.number(kMagic);
  writer.number(static_cast<uint32_t>(purpose));
  writer.number(topic);
  writer.raw(nonce);
  std::array<std::byte, kBytes> bytes;
  std::memcpy(bytes.data(), writer.view().data(), kBytes);
  return bytes;
}

std::optional<Greeting> Greeting::decode(std::span<const std::byte, kBytes> bytes) {
  Reader reader(bytes);
  const bool isOurs = reader.number<uint32_t>() == kMagic;
  const auto purpose = reader.number<uint32_t>();
  Greeting greeting;
  greeting.topic = reader.number<uint64_t>();
  reader.raw(greeting.nonce);
  if (!isOurs || purpose < static_cast<uint32_t>(Purpose::Root) || purpose > static_cast<uint32_t>(Purpose::Share)) return std::nullopt;
  greeting.purpose = static_cast<Purpose>(purpose);
  return greeting;
}

Status prepareCrypto() {
  if (sodium_init() < 0) return error(Code::SystemError, "the system gives no random numbers: connections cannot be authenticated");
  return {};
}

void fillRandom(std::span<uint8_t> bytes) { randombytes_buf(bytes.data(), bytes.size()); }

uint64_t randomNumber() {
  uint64_t number = 0;
  while (number == 0) randombytes_buf(&number, sizeof number);
  return number;
}

Proof prove(const Secret& secret, Side speaker, const Greeting& greeting, const Nonce& acceptorNonce) {
  return hashOfConnection(secret, speaker == Side::Connector ? "proof of the connector" : "proof of the acceptor", greeting, acceptorNonce);
}

bool equal(const Proof& a, const Proof& b) { return sodium_memcmp(a.data(), b.data(), a.size()) == 0; }

SessionKeys deriveKeys(const Secret& secret, Side own, const Greeting& greeting, const Nonce& acceptorNonce) {
  SessionKeys keys;
  keys.sends = hashOfConnection(secret, "frames of the connector", greeting, acceptorNonce);
  keys.receives = hashOfConnection(secret, "frames of the acceptor", greeting, acceptorNonce);
  if (own == Side::Acceptor) std::swap(keys.sends, keys.receives);
  return keys;
}

Secret derive(const Secret& secret, std::string_view purpose, std::span<const std::byte> data) {
  Secret result;
  crypto_generichash_state state;
  const auto size = static_cast<uint8_t>(purpose.size());
  crypto_generichash_init(&state, secret.data(), secret.size(), result.size());
  crypto_generichash_update(&state, &size, 1);
  crypto_generichash_update(&state, reinterpret_cast<const uint8_t*>(purpose.data()), size);
  crypto_generichash_update(&state, bytesOf(data), data.size());
  crypto_generichash_final(&state, result.data(), result.size());
  return result;
}

Secret secretOf(uint64_t token, const Secret& secret) {
  Writer writer;
  writer.number(token);
  return derive(secret, "one process", writer.view());
}

uint64_t hashNumber(std::string_view purpose, std::span<const std::byte> data) {
  const Secret hash = derive(Secret{}, purpose, data);
  uint64_t number = 0;
  for (size_t i = 0; i < sizeof number; ++i) number |= static_cast<uint64_t>(hash[i]) << (8 * i);
  return number;
}

std::vector<std::byte> Sealer::seal(uint8_t kind, std::span<const std::byte> payload) {
  const size_t plain = 1 + payload.size();
  const auto length = static_cast<uint32_t>(plain + kTagBytes);
  std::vector<std::byte> frame(kLengthBytes + length);
  for (size_t i = 0; i < kLengthBytes; ++i) frame[i] = static_cast<std::byte>(length >> (8 * i));
  std::byte* const body = frame.data() + kLengthBytes;
  body[0] = static_cast<std::byte>(kind);
  if (!payload.empty()) std::memcpy(body + 1, payload.data(), payload.size());
  const FrameNonce nonce = nonceOf(number_++);
  auto* const text = reinterpret_cast<uint8_t*>(body);  // encrypted in place
  crypto_aead_chacha20poly1305_ietf_encrypt(text, nullptr, text, plain, reinterpret_cast<const uint8_t*>(frame.data()), kLengthBytes,
                                            nullptr, nonce.data(), key_.data());
  return frame;
}

std::optional<size_t> Opener::lengthOf(std::span<const std::byte, kLengthBytes> head) {
  const size_t length = Reader(head).number<uint32_t>();
  if (length < 1 + kTagBytes || length > kMostFrameBytes) return std::nullopt;
  return length;
}

std::optional<Opener::Frame> Opener::open(std::span<std::byte> sealed) {
  if (sealed.size() < 1 + kTagBytes || sealed.size() > kMostFrameBytes) return std::nullopt;
  std::array<uint8_t, kLengthBytes> head;
  for (size_t i = 0; i < kLengthBytes; ++i) head[i] = static_cast<uint8_t>(sealed.size() >> (8 * i));
  const FrameNonce nonce = nonceOf(number_);
  auto* const text = reinterpret_cast<uint8_t*>(sealed.data());
  if (crypto_aead_chacha20poly1305_ietf_decrypt(text, nullptr, nullptr, text, sealed.size(), head.data(), head.size(), nonce.data(),
                                                key_.data()) != 0)
    return std::nullopt;
  ++number_;
  return Frame{std::to_integer<uint8_t>(sealed[0]), sealed.subspan(1, sealed.size() - 1 - kTagBytes)};
}

}  // namespace tutti::bootstrap
