#include "bench/check.h"

#include <algorithm>
#include <cstring>

#include "core/format.h"

namespace tutti::bench {
namespace {

/// One byte value a round, so that data left from the round before is not taken for untouched memory.
std::byte poisonOf(const Round& round) { return static_cast<std::byte>(0xc3 + 2 * (round.phase % 17)); }

/// Bytes of this rank's memory that the call may touch, counted from the start of either buffer.
uint64_t usedBytes(const Call& call, bool isSend) {
  const uint64_t count = isSend ? call.sendCount() : call.receiveCount();
  return count * sizeOf(call.type);
}

uint64_t countUnpoisoned(const std::byte* data, uint64_t bytes, std::byte poison) {
  return bytes - static_cast<uint64_t>(std::count(data, data + bytes, poison));
}

/// The receive buffer of an operation that moves blocks: who sent block `block`, and from where in the sender's sequence.
struct Origin {
  int sender;
  uint64_t first;
};

Origin originOf(const Call& call, int rank, int block) {
  const uint64_t mine = static_cast<uint64_t>(rank) * call.count;
  switch (call.operation->op) {
    case Op::AllGather:
    case Op::Gather: return {block, 0};
    case Op::AllToAll: return {block, mine};
    case Op::Scatter: return {call.root, mine};
    case Op::SendRecv: return {(rank + call.ranks - 1) % call.ranks, 0};
    default: return {call.root, 0};
  }
}

Verdict judgeResult(const Call& call, int rank, const Placement& placement, const Round& round) {
  Verdict verdict;
  const auto judgeBlock = [&](const Table& table, uint64_t place, uint64_t first) {
    const Table::Mismatch mismatch =
        table.compare(placement.receive + place * sizeOf(call.type), call.count, first + round.phase);
    if (mismatch.wrong == 0) return;
    verdict.add(mismatch.wrong, format("{}: rank {}, element {} {}", describe(call), rank, place + mismatch.index, mismatch.text));
  };
  if (call.operation->isReduction) {
    const bool isScattered = call.operation->op == Op::ReduceScatter;
    judgeBlock(round.pattern->reduced(), 0, isScattered ? static_cast<uint64_t>(rank) * call.count : 0);
    return verdict;
  }
  const int blocks = call.operation->receivesBlocks ? call.ranks : 1;
  for (int block = 0; block < blocks; ++block) {
    const Origin origin = originOf(call, rank, block);
    judgeBlock(round.pattern->input(origin.sender), static_cast<uint64_t>(block) * call.count, origin.first);
  }
  return verdict;
}

}  // namespace

void Verdict::add(uint64_t count, const std::string& text) {
  if (wrong == 0 && count != 0) first = text;
  wrong += count;
}

void writeInputs(const Call& call, int rank, const Placement& placement, const Round& round) {
  if (!call.operation->sends(rank, call.root)) return;
  round.pattern->input(rank).fill(placement.send, call.sendCount(), round.phase);
}

void prepare(const Call& call, int rank, const Placement& placement, Memory& memory, const Round& round) {
  memory.send.writeGuards(usedBytes(call, true));
  memory.receive.writeGuards(usedBytes(call, false));
  const uint64_t received = usedBytes(call, false);
  // In place, the input may lie inside what is poisoned here or the other way round; it is written last.
  std::memset(placement.receive, static_cast<int>(poisonOf(round)), received);
  writeInputs(call, rank, placement, round);
}

Verdict judge(const Call& call, int rank, const Placement& placement, const Memory& memory, const Round& round) {
  Verdict verdict;
  const uint64_t guards =
      memory.send.countBrokenGuards(usedBytes(call, true)) + memory.receive.countBrokenGuards(usedBytes(call, false));
  if (call.operation->receives(rank, call.root)) {
    verdict = judgeResult(call, rank, placement, round);
  } else {
    const uint64_t touched = countUnpoisoned(placement.receive, usedBytes(call, false), poisonOf(round));
    verdict.add(touched, format("{}: rank {}: the receive buffer was written, though only the root receives", describe(call), rank));
  }
  verdict.add(guards, format("{}: rank {}: {} bytes beside the buffers were overwritten", describe(call), rank, guards));
  if (!placement.sharesMemory && call.operation->sends(rank, call.root)) {
    const Table::Mismatch mismatch = round.pattern->input(rank).compare(placement.send, call.sendCount(), round.phase);
    verdict.add(mismatch.wrong, format("{}: rank {}: the send buffer was changed at element {}", describe(call), rank, mismatch.index));
  }
  return verdict;
}

uint64_t hashResult(const Call& call, const Placement& placement) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;  // odd, so that a step loses nothing
  const uint64_t bytes = call.receiveCount() * sizeOf(call.type);
  uint64_t hash = bytes;
  for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, placement.receive + at, std::min<uint64_t>(sizeof word, bytes - at));
    hash = (hash ^ word) * kFactor;
    hash ^= hash >> 29;
  }
  return hash;
}

Verdict compareRanks(const Call& call, const Placement& mine, const Placement& theirs, int theirRank) {
  Verdict verdict;
  const uint64_t size = sizeOf(call.type);
  if (std::memcmp(mine.receive, theirs.receive, call.receiveCount() * size) == 0) return verdict;
  for (uint64_t i = 0; i < call.receiveCount(); ++i) {
    if (std::memcmp(mine.receive + i * size, theirs.receive + i * size, size) == 0) continue;
    verdict.add(1, format("{}: element {} is not bit for bit that of rank {}", describe(call), i, theirRank));
  }
  return verdict;
}

}  // namespace tutti::bench
