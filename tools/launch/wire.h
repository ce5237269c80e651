// The messages of the exchange over sockets, as bytes. Numbers are little-endian.
// Plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "launch/seal.h"
#include "nccl.h"

namespace tutti::launch::wire {

inline constexpr std::array<unsigned char, 8> kMagic = {'t', 'u', 't', 't', 'i', 'i', 'd', '1'};

struct Hello {
  std::array<unsigned char, 8> magic = kMagic;
  Nonce nonce{};
};
struct Request {
  uint32_t rank = 0;
  uint32_t ranks = 0;
};
enum class Verdict : uint32_t { Served = 1, Again = 2, Disagrees = 3 };
struct Answer {
  Verdict verdict = Verdict::Served;
  uint32_t ranks = 0;  ///< as rank 0 knows it
  ncclUniqueId id{};
};
struct Thanks {
  uint32_t rank = 0;
};
static_assert(sizeof(Hello) == 40 && sizeof(Request) == 8 && sizeof(Answer) == 136 && sizeof(Thanks) == 4);

/// The number under which each is sealed.
inline constexpr uint8_t kRequest = 1;
inline constexpr uint8_t kAnswer = 2;
inline constexpr uint8_t kThanks = 3;

template <class T>
using Sealed = std::array<std::byte, sizeof(T) + kSealBytes>;

template <class T>
Sealed<T> sealed(const Key& session, uint8_t number, const T& message) {
  Sealed<T> result;
  seal(session, number, std::as_bytes(std::span(&message, 1)), result.data());
  return result;
}

template <class T>
bool unsealed(const Key& session, uint8_t number, std::span<const std::byte> bytes, T& message) {
  return bytes.size() == sizeof(Sealed<T>) && unseal(session, number, bytes, std::as_writable_bytes(std::span(&message, 1)).data());
}

}  // namespace tutti::launch::wire
