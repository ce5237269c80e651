#include "exec/cuda/host_block.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/format.h"

namespace tutti::exec::cuda {
namespace {

using algo::Buffer;
using algo::Kind;

uint64_t load(const uint64_t* word, std::memory_order order) { return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(*word)).load(order); }
void store(uint64_t* word, uint64_t value, std::memory_order order) { std::atomic_ref<uint64_t>(*word).store(value, order); }

uint64_t* wordAt(const std::byte* memory, uint64_t index) { return reinterpret_cast<uint64_t*>(const_cast<std::byte*>(memory)) + index; }

/// Pieces of a flagged slot that `bytes` of data take: one at least.
uint64_t unitsOf(Protocol protocol, uint64_t bytes) {
  const uint64_t data = protocol == Protocol::Cells ? kCellDataBytes : kLineDataBytes;
  return std::max<uint64_t>((bytes + data - 1) / data, 1);
}

uint64_t partOf(const std::byte* data, uint64_t at, uint64_t bytes) {
  uint64_t word = 0;
  if (at < bytes) std::memcpy(&word, data + at, std::min<uint64_t>(8, bytes - at));
  return word;
}

void writeCell(std::byte* memory, uint64_t cell, uint64_t word, uint64_t flag) {
  store(wordAt(memory, 2 * cell), (word & 0xffffffffU) | flag << 32, std::memory_order_relaxed);
  store(wordAt(memory, 2 * cell + 1), word >> 32 | flag << 32, std::memory_order_relaxed);
}

void encode(Protocol protocol, std::byte* memory, const std::byte* data, uint64_t bytes, uint64_t flag) {
  const uint64_t units = unitsOf(protocol, bytes);
  if (protocol == Protocol::Cells) {
    for (uint64_t c = 0; c < units; ++c) writeCell(memory, c, partOf(data, c * kCellDataBytes, bytes), flag);
    return;
  }
  constexpr uint64_t kWords = kLineDataBytes / 8;
  for (uint64_t line = 0; line < units; ++line) {
    for (uint64_t w = 0; w < kWords; ++w)
      store(wordAt(memory, line * (kWords + 1) + w), partOf(data, line * kLineDataBytes + 8 * w, bytes), std::memory_order_relaxed);
    store(wordAt(memory, line * (kWords + 1) + kWords), flag, std::memory_order_release);
  }
}

void decode(Protocol protocol, const std::byte* memory, std::byte* data, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += 8) {
    uint64_t word = 0;
    if (protocol == Protocol::Cells) {
      const uint64_t low = load(wordAt(memory, at / 8 * 2), std::memory_order_relaxed);
      const uint64_t high = load(wordAt(memory, at / 8 * 2 + 1), std::memory_order_relaxed);
      word = (low & 0xffffffffU) | high << 32;
    } else {
      word = load(wordAt(memory, at / kLineDataBytes * (kLineBytes / 8) + at % kLineDataBytes / 8), std::memory_order_relaxed);
    }
    std::memcpy(data + at, &word, std::min<uint64_t>(8, bytes - at));
  }
}

}  // namespace

HostBlock::HostBlock(KernelId kernel, const Launch& launch, int32_t block) : kernel_(kernel), launch_(launch), block_(block) {
  beginWork();
}

const ProgramHead& HostBlock::head() const {
  return *reinterpret_cast<const ProgramHead*>(work_->program.at(channel_, lane_));
}
const ProgramStep& HostBlock::step() const { return reinterpret_cast<const ProgramStep*>(&head() + 1)[step_]; }

std::byte* HostBlock::place(Buffer buffer, uint64_t offset) const {
  if (buffer == Buffer::None) return nullptr;
  return (buffer == Buffer::In ? const_cast<std::byte*>(work_->in) : work_->out) + offset;
}

/// The next work that this block has a part in.
void HostBlock::beginWork() {
  work_ = nullptr;
  for (; next_ < launch_.works && work_ == nullptr; ++next_) {
    const Work& work = next_ < kInlineWorks ? launch_.work[next_] : launch_.more[next_ - kInlineWorks];
    const int32_t own = block_ - work.firstBlock;
    if (own < 0 || own >= work.blocks()) continue;
    work_ = &work;
    channel_ = own / work.lanes;
    lane_ = work.firstLane + own % work.lanes;
  }
  if (work_ == nullptr) return;
  pipeChannel_ = channel_ + work_->firstChannel;
  reduction_ = {work_->type, work_->op, work_->scaling};
  if (work_->scaling.hasFactor && work_->factorSource != nullptr) {
    reduction_.scaling.factor = 0;
    std::memcpy(&reduction_.scaling.factor, work_->factorSource, elementBytes());
  }
  reduce_ = host::selectReduce(work_->type, work_->op, host::detectSimd());
  slice_ = step_ = 0;
  at_ = 0;
  usesWindow_ = hasTaken_ = false;
  given_.clear();
  done_.clear();
  scanned_ = nullptr;
  const uint64_t* const epochs = launch_.comm.window.epochs;
  epoch_ = epochs == nullptr ? 0 : load(epochs + pipeChannel_, std::memory_order_relaxed);
  if (block_ == 0) postOnBoards(launch_.comm.wait);
}

/// Leaves behind how far it has come.
void HostBlock::endWork() {
  for (const auto& [end, done] : done_) store(&end->done, done, std::memory_order_relaxed);
  if (usesWindow_) store(launch_.comm.window.epochs + pipeChannel_, epoch_, std::memory_order_relaxed);
  if (hasTaken_) store(&launch_.comm.pipes.handOver[pipeChannel_ * kHandOverLanes + lane_].taken, taken_, std::memory_order_relaxed);
  beginWork();
}

void HostBlock::nextStep() {
  at_ = 0;
  if (++step_ < head().steps) return;
  step_ = 0;
  ++slice_;
  if (usesWindow_) epoch_ += static_cast<uint64_t>(head().rounds);
}

bool HostBlock::advance() {
  bool hasMoved = false;
  while (work_ != nullptr && fault_.empty()) {
    if (slice_ >= work_->geometry.slices || head().steps == 0) {
      endWork();
      hasMoved = true;
      continue;
    }
    const Look look = runStep(step());
    if (look == Look::Waits) return hasMoved;
    if (look == Look::GaveUp) beginWork();
    hasMoved = true;
  }
  return hasMoved;
}

HostBlock::Look HostBlock::runStep(const ProgramStep& s) {
  Look look = Look::Waits;
  switch (s.kind) {
    case Kind::Pipe: return runPipe(s);
    case Kind::Give: look = give(s); break;
    case Kind::Take: look = take(); break;
    default: look = runWindow(s); break;
  }
  if (look == Look::Ready) nextStep();
  return look;
}

HostBlock::Look HostBlock::await(bool isThere, Waiting waiting, int32_t peer, uint64_t expected, uint64_t seen) {
  if (isThere) return Look::Ready;
  const bool givesUp = wait_.givesUp(launch_.comm.wait, {waiting, launch_.comm.rank, peer, pipeChannel_, step_, expected, seen});
  if (givesUp) wait_.end();
  return givesUp ? Look::GaveUp : Look::Waits;
}

HostBlock::Look HostBlock::awaitCounter(const uint64_t* word, uint64_t least, Waiting waiting, int32_t peer) {
  const uint64_t seen = load(word, std::memory_order_acquire);
  return await(seen >= least, waiting, peer, least, seen);
}

// ---- pipes -----------------------------------------------------------------------------------------------------------------

PipeEnd* HostBlock::findEnd(int32_t peer, uint8_t port, bool sends) {
  PipeEnd* const ends = launch_.comm.pipes.ends + static_cast<ptrdiff_t>(pipeChannel_) * kMostEnds;
  for (int e = 0; e < kMostEnds && ends[e].peer >= 0; ++e)
    if (ends[e].peer == peer && ends[e].port == port && ends[e].sends == sends) return ends + e;
  fault_ = format("rank {} step {} of channel {}: no pipe {} rank {}, port {}", launch_.comm.rank, step_, pipeChannel_,
                  sends ? "to" : "from", peer, port);
  return nullptr;
}

uint64_t& HostBlock::doneOf(PipeEnd* end) {
  const auto [at, isNew] = done_.try_emplace(end);
  if (isNew) at->second = load(&end->done, std::memory_order_relaxed);
  return at->second;
}

HostBlock::Look HostBlock::runPipe(const ProgramStep& s) {
  const PipeView& pipes = launch_.comm.pipes;
  const auto slots = static_cast<uint64_t>(pipes.slots);
  const algo::Range own = range(s.srcChunk);
  const algo::Range out = range(s.dstChunk);
  const bool hasOwn = s.srcBuffer != Buffer::None;
  const bool hasOut = s.dstBuffer != Buffer::None;
  const uint64_t whole = (!hasOwn && hasOut ? out.elems : own.elems) * elementBytes();
  const bool isLocal = s.froms == 0 && s.tos == 0;
  const uint64_t most = isLocal ? std::max<uint64_t>(whole, 1) : carriedBytes(protocol(), pipes.slotBytes);

  Job job;
  job.bytes = std::min(whole - at_, most);
  job.reduces = s.reduce;
  job.isLast = s.reduce && hasOut;
  job.scaled = s.reduce && hasOwn && reduction_.scaling.hasFactor ? 1 : 0;
  job.room = pipes.slotBytes;
  if (hasOwn) job.sources.push_back({place(s.srcBuffer, own.begin * elementBytes() + at_)});
  if (hasOut) job.targets.push_back({place(s.dstBuffer, out.begin * elementBytes() + at_)});
  std::vector<PipeEnd*> ends;
  for (int i = 0; i < s.froms + s.tos; ++i) {
    const bool sends = i >= s.froms;
    PipeEnd* const end = findEnd(sends ? s.to[i - s.froms] : s.from[i], s.port, sends);
    if (end == nullptr) return Look::GaveUp;
    ends.push_back(end);
    const uint64_t done = doneOf(end);
    std::byte* const slot = end->slots + done % slots * pipes.slotBytes;
    Look look = Look::Ready;
    if (!sends && !isFlagged()) look = awaitCounter(end->wait, done + 1, Waiting::ForData, end->peer);
    if (sends && done >= slots) look = awaitCounter(end->wait, done + 1 - slots, Waiting::ForSlot, end->peer);
    if (look != Look::Ready) return look;
    if (sends) {
      job.targets.push_back({slot, done + 1, isFlagged()});
      job.rewrites = job.rewrites || (protocol() == Protocol::Cells && (done + 1) % kRewriteEvery < slots);
    } else {
      job.sources.push_back({slot, done + 1, isFlagged() ? end->peer : -1});
    }
  }
  if (const Look look = awaitFlags(job); look != Look::Ready) return look;
  carryOut(job);
  for (PipeEnd* const end : ends) {
    const uint64_t done = ++doneOf(end);
    if (!end->sends || !isFlagged()) store(end->tell, done, std::memory_order_release);
  }
  at_ += most;
  if (at_ >= whole) nextStep();
  return Look::Ready;
}

bool HostBlock::hasFlags(const Source& source, uint64_t bytes, uint64_t& seen) {
  if (scanned_ != source.at) {
    scanned_ = source.at;
    scannedCells_ = 0;
  }
  for (const uint64_t units = unitsOf(protocol(), bytes); scannedCells_ < units; ++scannedCells_) {
    if (protocol() == Protocol::Lines) {
      seen = load(wordAt(source.at, (scannedCells_ + 1) * (kLineBytes / 8) - 1), std::memory_order_acquire);
      if (seen != source.flag) return false;
      continue;
    }
    for (int half = 0; half < 2; ++half) {
      seen = load(wordAt(source.at, 2 * scannedCells_ + static_cast<uint64_t>(half)), std::memory_order_relaxed) >> 32;
      if (seen != static_cast<uint32_t>(source.flag)) return false;
    }
  }
  scanned_ = nullptr;
  return true;
}

HostBlock::Look HostBlock::awaitFlags(const Job& job) {
  for (const Source& source : job.sources) {
    if (source.peer < 0) continue;
    uint64_t seen = 0;
    const bool isThere = hasFlags(source, job.bytes, seen);
    if (const Look look = await(isThere, Waiting::ForCell, source.peer, source.flag, seen); look != Look::Ready) return look;
  }
  return Look::Ready;
}

// ---- hand-over -------------------------------------------------------------------------------------------------------------

HostBlock::Look HostBlock::give(const ProgramStep& s) {
  HandOver& taker = launch_.comm.pipes.handOver[pipeChannel_ * kHandOverLanes + s.lane];
  const auto [at, isNew] = given_.try_emplace(s.lane);
  if (isNew) at->second = load(&taker.given, std::memory_order_relaxed);
  store(&taker.given, ++at->second, std::memory_order_release);
  return Look::Ready;
}

HostBlock::Look HostBlock::take() {
  const HandOver& own = launch_.comm.pipes.handOver[pipeChannel_ * kHandOverLanes + lane_];
  if (!hasTaken_) taken_ = load(&own.taken, std::memory_order_relaxed);
  hasTaken_ = true;
  const Look look = awaitCounter(&own.given, taken_ + 1, Waiting::ForHandOver, lane_);
  if (look == Look::Ready) ++taken_;
  return look;
}

// ---- windows ---------------------------------------------------------------------------------------------------------------

HostBlock::Look HostBlock::runWindow(const ProgramStep& s) {
  usesWindow_ = true;
  const WindowView& window = launch_.comm.window;
  const int32_t self = launch_.comm.rank;
  const int32_t ranks = launch_.comm.ranks;
  const uint64_t epoch = epoch_ + s.round + 1;
  const bool hasOut = s.dstBuffer != Buffer::None;
  const auto ownShare = [&](int32_t writer) { return window.shareOf(writer, epoch, self, ranks, pipeChannel_); };
  const auto cell = [&](int32_t writer) { return Source{ownShare(writer), epoch, isFlagged() ? writer : -1}; };
  const Target theirs{s.tos > 0 ? window.shareAt(s.to[0], epoch, self, ranks, pipeChannel_) : nullptr, epoch, isFlagged()};
  const Source own{place(s.srcBuffer, range(s.srcChunk).begin * elementBytes())};
  const Target out{place(s.dstBuffer, range(s.dstChunk).begin * elementBytes())};

  if (!isFlagged() && s.kind == Kind::Await)
    return awaitCounter(window.arrival(self, s.from[0], pipeChannel_), epoch, Waiting::ForArrival, s.from[0]);
  if (!isFlagged() && s.kind == Kind::Arrive) {
    store(window.arrival(s.to[0], self, pipeChannel_), epoch, std::memory_order_release);
    return Look::Ready;
  }
  Job job;
  job.reduces = s.reduce;
  job.isLast = s.reduce && hasOut;
  job.scaled = s.reduce && reduction_.scaling.hasFactor ? 1 : 0;
  job.room = shareRoom(protocol(), window.shareBytes);
  job.rewrites = isFlagged() && epoch % kRewriteEvery < 2;
  job.bytes = range(hasOut ? s.dstChunk : s.srcChunk).elems * elementBytes();
  switch (s.kind) {
    case Kind::Await:
    case Kind::Arrive: job.bytes = 0; break;
    default: break;
  }
  if (s.kind == Kind::Store) job.sources = {own};
  if (s.kind == Kind::Store || s.kind == Kind::Arrive) job.targets = {theirs};
  if (s.kind == Kind::Await || s.kind == Kind::Load) job.sources = {cell(s.from[0])};
  if (s.kind == Kind::Load || s.kind == Kind::LoadReduce) job.targets = {out};
  if (s.kind == Kind::LoadReduce) {
    job.scaled <<= self;
    for (int32_t r = 0; r < ranks; ++r) job.sources.push_back(r == self ? own : cell(r));
  }
  if (job.bytes > carriedBytes(protocol(), job.room) && s.kind != Kind::Await) {
    fault_ = format("a slice of {} bytes does not fit a window's share of {}", job.bytes, job.room);
    return Look::GaveUp;
  }
  if (const Look look = awaitFlags(job); look != Look::Ready) return look;
  carryOut(job);
  return Look::Ready;
}

// ---- data ------------------------------------------------------------------------------------------------------------------

void HostBlock::carryOut(const Job& job) {
  decoded_.resize(std::max(decoded_.size(), job.sources.size()));
  std::vector<const void*> sources;
  for (size_t i = 0; i < job.sources.size(); ++i) {
    const Source& source = job.sources[i];
    sources.push_back(source.at);
    if (source.peer < 0 || job.bytes == 0) continue;
    decoded_[i].resize(job.bytes);
    decode(protocol(), source.at, decoded_[i].data(), job.bytes);
    sources.back() = decoded_[i].data();
  }
  const std::byte* value = sources.empty() ? nullptr : static_cast<const std::byte*>(sources[0]);
  if (job.reduces && job.bytes > 0) {
    result_.resize(job.bytes);
    reduce_(result_.data(), sources.data(), static_cast<int>(sources.size()), job.bytes / elementBytes(), reduction_, job.scaled,
            job.isLast);
    value = result_.data();
  }
  for (const Target& target : job.targets) {
    if (!target.isFlagged) {
      if (job.bytes > 0) std::memmove(target.at, value, job.bytes);
      continue;
    }
    encode(protocol(), target.at, value, job.bytes, target.flag);
    if (!job.rewrites || protocol() != Protocol::Cells) continue;
    for (uint64_t c = unitsOf(protocol(), job.bytes); c < job.room / kCellBytes; ++c) writeCell(target.at, c, 0, target.flag);
  }
}

}  // namespace tutti::exec::cuda
