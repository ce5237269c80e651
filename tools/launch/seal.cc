#include "launch/seal.h"

#include <sodium.h>

#include <cstring>

namespace tutti::launch {
namespace {

static_assert(kSealBytes == crypto_secretbox_MACBYTES);
static_assert(sizeof(Key) == crypto_secretbox_KEYBYTES);
static_assert(sizeof(Key) == crypto_generichash_BYTES);

using BoxNonce = std::array<unsigned char, crypto_secretbox_NONCEBYTES>;

/// Numbers are never used twice with one session key, so they may serve as nonces as they are.
BoxNonce nonceOf(uint8_t number) { return {number}; }

const unsigned char* bytesOf(const void* data) { return static_cast<const unsigned char*>(data); }

Key hash(const Key* key, std::initializer_list<std::span<const unsigned char>> parts) {
  crypto_generichash_state state;
  crypto_generichash_init(&state, key ? key->data() : nullptr, key ? key->size() : 0, sizeof(Key));
  for (const auto part : parts) {
    // Lengths go in too, so that no two lists of parts look alike.
    const uint64_t size = part.size();
    crypto_generichash_update(&state, bytesOf(&size), sizeof size);
    crypto_generichash_update(&state, part.data(), part.size());
  }
  Key result;
  crypto_generichash_final(&state, result.data(), result.size());
  return result;
}

std::span<const unsigned char> partOf(std::string_view text) { return {bytesOf(text.data()), text.size()}; }

}  // namespace

Status startSeals() {
  if (sodium_init() >= 0) return {};
  return error(Code::SystemError, "the system gives no random numbers");
}

Key keyOf(std::string_view jobKey, std::string_view secret) {
  return hash(nullptr, {partOf("tutti launch"), partOf(jobKey), partOf(secret)});
}

Nonce drawNonce() {
  Nonce nonce;
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

Key sessionKey(const Key& key, const Nonce& asking, const Nonce& answering) { return hash(&key, {asking, answering}); }

uint64_t publicHash(const Key& key) {
  const Key hashed = hash(&key, {partOf("address")});
  uint64_t number = 0;
  std::memcpy(&number, hashed.data(), sizeof number);
  return number;
}

void seal(const Key& session, uint8_t number, std::span<const std::byte> message, std::byte* sealed) {
  (void)crypto_secretbox_easy(reinterpret_cast<unsigned char*>(sealed), bytesOf(message.data()), message.size(), nonceOf(number).data(),
                              session.data());
}

bool unseal(const Key& session, uint8_t number, std::span<const std::byte> sealed, std::byte* message) {
  return crypto_secretbox_open_easy(reinterpret_cast<unsigned char*>(message), bytesOf(sealed.data()), sealed.size(),
                                    nonceOf(number).data(), session.data()) == 0;
}

}  // namespace tutti::launch
