#include "exec/host/signature.h"

#include <array>
#include <string_view>

#include "core/format.h"

namespace tutti::exec::host {
namespace {

constexpr uint64_t kCountBits = kSequenceShift;
constexpr uint64_t kRootBits = 12;
constexpr uint64_t kMessageBits = 60;
constexpr uint64_t mask(uint64_t bits) { return (uint64_t{1} << bits) - 1; }

constexpr std::array<std::string_view, 6> kOpNames = {"sum", "prod", "max", "min", "avg", "pre-multiplied sum"};

Status mismatchOf(Rank rank, const std::string& own, Rank peer, const std::string& theirs) {
  return error(Code::InvalidUsage,
               "calls do not match: rank {} called {}, but rank {} called {}; all ranks of a communicator must make the same calls in the "
               "same order, with the same count, type, operation and root",
               rank.value, own, peer.value, theirs);
}

/// A count below 2^24 is itself; of larger ones every bit has a say.
uint64_t foldCount(uint64_t count) { return (count ^ count >> kCountBits ^ count >> 2 * kCountBits) & mask(kCountBits); }

}  // namespace

uint64_t packSignature(const Call& call) {
  const auto collective = static_cast<uint64_t>(call.collective);
  if (call.isMessage()) return collective << kMessageBits | ((call.count * sizeOf(call.type)) & mask(kMessageBits));
  uint64_t bits = collective;
  bits = bits << 4 | static_cast<uint64_t>(call.type);
  bits = bits << 4 | (reduces(call.collective) ? call.opCode & mask(4) : 0);
  bits = bits << kRootBits | (hasRoot(call.collective) ? static_cast<uint64_t>(call.root) & mask(kRootBits) : 0);
  bits = bits << kSequenceBits | (call.sequence & mask(kSequenceBits));
  return bits << kCountBits | foldCount(call.count);
}

Call unpackSignature(uint64_t signature) {
  Call call;
  call.collective = static_cast<Collective>(signature >> kMessageBits);
  if (call.isMessage()) {
    call.count = signature & mask(kMessageBits);
    return call;
  }
  call.count = signature & mask(kCountBits);
  call.sequence = signature >> kCountBits & mask(kSequenceBits);
  call.root = static_cast<int32_t>(signature >> (kCountBits + kSequenceBits) & mask(kRootBits));
  call.opCode = static_cast<uint8_t>(signature >> (kCountBits + kSequenceBits + kRootBits) & mask(4));
  call.type = static_cast<DataType>(signature >> (kCountBits + kSequenceBits + kRootBits + 4) & mask(4));
  return call;
}

Call onWindows(Call call) {
  call.opCode = reduces(call.collective) ? static_cast<uint8_t>(call.opCode | kReducedOnWindows) : kOnWindows;
  return call;
}

bool isOnWindows(const Call& call) {
  return reduces(call.collective) ? (call.opCode & kReducedOnWindows) != 0 : call.opCode == kOnWindows;
}

std::string_view operationName(uint8_t opCode) {
  const auto code = static_cast<uint8_t>(opCode & ~kReducedOnWindows);
  return code < kOpNames.size() ? kOpNames[code] : "?";
}

std::string describeCall(const Call& call) {
  if (call.isMessage())
    return format("{} #{} of {} bytes {} rank {}", call.receives ? "Recv" : "Send", call.sequence, call.count * sizeOf(call.type),
                  call.receives ? "from" : "to", call.root);
  if (call.collective == kSplitCall) return format("CommSplit #{}", call.sequence);
  if (call.collective == kShrinkCall) return "CommShrink";
  std::string text = format("{} #{} of {} {}", static_cast<int>(call.collective) < kNumCollectives ? name(call.collective) : "call",
                            call.sequence, call.count, static_cast<int>(call.type) < kNumDataTypes ? name(call.type) : "?");
  if (reduces(call.collective)) text += format(", {}", operationName(call.opCode));
  if (hasRoot(call.collective)) text += format(", root {}", call.root);
  if (isOnWindows(call)) text += ", on buffers in symmetric windows";
  return text;
}

std::string describeSignature(uint64_t signature) {
  const Call call = unpackSignature(signature);
  return call.isMessage() ? format("a message of {} bytes", call.count) : describeCall(call);
}

bool agree(const Call& a, const Call& b) {
  return a.collective == b.collective && a.type == b.type && a.count == b.count && a.sequence == b.sequence &&
         (reduces(a.collective) ? a.opCode == b.opCode : isOnWindows(a) == isOnWindows(b)) &&
         (!hasRoot(a.collective) || a.root == b.root);
}

Status mismatch(Rank rank, const Call& own, Rank peer, const Call& theirs) {
  if (own.isMessage() && theirs.isMessage())
    return error(Code::InvalidUsage,
                 "calls do not match: rank {} called {}, but rank {} called {}; a message must be as long where it is received as where it "
                 "is sent",
                 rank.value, describeCall(own), peer.value, describeCall(theirs));
  return mismatchOf(rank, describeCall(own), peer, describeCall(theirs));
}

Status mismatch(Rank rank, uint64_t own, Rank peer, uint64_t theirs) {
  return mismatchOf(rank, describeSignature(own), peer, describeSignature(theirs));
}

}  // namespace tutti::exec::host
