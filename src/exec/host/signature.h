// A call in 64 bits, sent with every message, so that ranks that made different calls notice at the first contact; and calls in words.
// Plain value; pure functions. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "core/call.h"
#include "core/status.h"

namespace tutti::exec::host {

using tutti::Call;

/// What takes a number among the collectives of a communicator, or the place of one, without being one: the making of a child.
inline constexpr auto kSplitCall = static_cast<Collective>(kNumCollectives);
inline constexpr auto kShrinkCall = static_cast<Collective>(kNumCollectives + 1);

/// Operation of a call that reduces nothing, and is carried out by copy engines of GPUs, because its buffers lie in symmetric windows: a
/// promise that all ranks have to keep.
inline constexpr uint8_t kOnWindows = 6;

/// The same of a call that reduces, beside its operation: blocks of all ranks combine what lies there.
inline constexpr uint8_t kReducedOnWindows = 8;
/// `call` as one on buffers in symmetric windows; whether it is one.
Call onWindows(Call call);
bool isOnWindows(const Call& call);

/// Where the sequence number lies in a signature of a collective.
inline constexpr uint64_t kSequenceBits = 16;
inline constexpr uint64_t kSequenceShift = 24;

/// Keeps the collective, type, operation, the low 12 bits of the root, 16 of the sequence number and the count folded to 24: below 2^24 it
/// is the count. A message of a pair keeps the collective and the low 60 bits of its size in bytes, whatever its type.
uint64_t packSignature(const Call& call);
/// The signature of a collective like the one that `signature` names, with another sequence number.
inline uint64_t withSequence(uint64_t signature, uint64_t sequence) {
  constexpr uint64_t kMask = (uint64_t{1} << kSequenceBits) - 1;
  return (signature & ~(kMask << kSequenceShift)) | (sequence & kMask) << kSequenceShift;
}
/// What a signature still tells. A message comes out as one of bytes, without peer and number.
Call unpackSignature(uint64_t signature);

/// The call in words: "AllReduce #7 of 1024 float, sum", "Send #0 of 64 bytes to rank 3".
std::string describeCall(const Call& call);
/// The same of a signature, only as exact as the bits allow; a message is "a message of 64 bytes".
std::string describeSignature(uint64_t signature);
/// "sum" … "pre-multiplied sum"; "?" for what is none.
std::string_view operationName(uint8_t opCode);

/// Whether two ranks made the same collective call, to the last bit of what matters for it.
bool agree(const Call& a, const Call& b);

/// The error of two ranks that made different calls; quotes both.
Status mismatch(Rank rank, const Call& own, Rank peer, const Call& theirs);
/// The same where only signatures are at hand.
Status mismatch(Rank rank, uint64_t own, Rank peer, uint64_t theirs);

}  // namespace tutti::exec::host
