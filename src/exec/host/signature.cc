#include "exec/host/signature.h"

#include <array>
#include <string_view>

#include "core/format.h"

namespace tutti::exec::host {
namespace {

constexpr uint64_t kCountBits = 24;
constexpr uint64_t kSequenceBits = 16;
constexpr uint64_t kRootBits = 12;
constexpr uint64_t kMessageBits = 60;
constexpr uint64_t mask(uint64_t bits) { return (uint64_t{1} << bits) - 1; }

constexpr std::array<std::string_view, 6> kOpNames = {"sum", "prod", "max", "min", "avg", "pre-multiplied sum"};

}  // namespace

uint64_t packSignature(const Call& call) {
  const auto collective = static_cast<uint64_t>(call.collective);
  if (call.collective == Collective::SendRecv) return collective << kMessageBits | ((call.count * sizeOf(call.type)) & mask(kMessageBits));
  uint64_t bits = collective;
  bits = bits << 4 | static_cast<uint64_t>(call.type);
  bits = bits << 4 | (reduces(call.collective) ? call.opCode & mask(4) : 0);
  bits = bits << kRootBits | (hasRoot(call.collective) ? static_cast<uint64_t>(call.root) & mask(kRootBits) : 0);
  bits = bits << kSequenceBits | (call.sequence & mask(kSequenceBits));
  return bits << kCountBits | (call.count & mask(kCountBits));
}

std::string describeSignature(uint64_t signature) {
  const auto collective = static_cast<Collective>(signature >> kMessageBits);
  if (collective == Collective::SendRecv) return format("a message of {} bytes", signature & mask(kMessageBits));
  const uint64_t count = signature & mask(kCountBits);
  const uint64_t sequence = signature >> kCountBits & mask(kSequenceBits);
  if (collective == kSplitCall) return format("CommSplit #{}", sequence);
  if (collective == kShrinkCall) return "CommShrink";
  const uint64_t root = signature >> (kCountBits + kSequenceBits) & mask(kRootBits);
  const uint64_t op = signature >> (kCountBits + kSequenceBits + kRootBits) & mask(4);
  const uint64_t type = signature >> (kCountBits + kSequenceBits + kRootBits + 4) & mask(4);
  std::string text = format("{} #{} of {} {}", static_cast<uint64_t>(collective) < kNumCollectives ? name(collective) : "call", sequence,
                            count, type < kNumDataTypes ? name(static_cast<DataType>(type)) : "?");
  if (reduces(collective)) text += format(", {}", op < kOpNames.size() ? kOpNames[op] : "?");
  if (hasRoot(collective)) text += format(", root {}", root);
  return text;
}

Status mismatch(Rank rank, uint64_t own, Rank peer, uint64_t theirs) {
  return error(Code::InvalidUsage,
               "calls do not match: rank {} called {}, but rank {} called {}; all ranks of a communicator must make the same calls in the "
               "same order, with the same count, type, operation and root",
               rank.value, describeSignature(own), peer.value, describeSignature(theirs));
}

}  // namespace tutti::exec::host
