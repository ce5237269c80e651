// What two processes of a job say to each other over a connection that anybody could have opened: sealed with a key of the job.
//
// One thread. The key is made from the job's name and, where it is set, TUTTI_JOB_SECRET. Without the secret a seal only tells jobs
// apart; with it, a stranger can neither read nor forge a message, nor use one of another connection or direction again.
// 1. Each side contributes a random nonce, so no two connections have the same key; each of the messages has a number of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "core/status.h"

namespace tutti::launch {

using Key = std::array<unsigned char, 32>;
using Nonce = std::array<unsigned char, 32>;

inline constexpr size_t kSealBytes = 16;  ///< that a sealed message is longer than the message

/// Must have succeeded before anything else of this file is used; any number of times.
Status startSeals();

Key keyOf(std::string_view jobKey, std::string_view secret);
Nonce drawNonce();
Key sessionKey(const Key& key, const Nonce& asking, const Nonce& answering);
/// A number that strangers cannot tell the key from.
uint64_t publicHash(const Key& key);

/// `sealed` takes message.size() + kSealBytes bytes.
void seal(const Key& session, uint8_t number, std::span<const std::byte> message, std::byte* sealed);
/// `message` takes sealed.size() - kSealBytes bytes. False when the other side has another key, or sealed another number.
bool unseal(const Key& session, uint8_t number, std::span<const std::byte> sealed, std::byte* message);

}  // namespace tutti::launch
