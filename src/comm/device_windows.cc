#include "comm/device_windows.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/format.h"
#include "exec/host/signature.h"

namespace tutti::comm {

using driver::cuda::DevicePtr;
using driver::cuda::Stream;
using exec::cuda::CopyStage;
using plan::When;
using transport::device::UserWindow;

namespace {

constexpr std::array kCopied{Collective::Broadcast, Collective::AllGather, Collective::AllToAll};
/// Only where buffers are lent: each rank's arguments tell of its own alone.
constexpr std::array kCopiedIfLent{Collective::Scatter, Collective::Gather, Collective::SendRecv};
/// Blocks that combine: more are hardly faster (docs/decisions/0042-mapped.md), and take multiprocessors from the caller's own kernels.
constexpr int32_t kMappedBlocks = 12;
/// And that move, between two ranks and between more; some of them have the rank's own part.
constexpr int32_t kPairsBlocks = 24;
constexpr int32_t kMovedBlocks = 32;
/// Pieces of so much and more go in turns. Smaller ones would take longer so: every copy takes microseconds to begin.
constexpr uint64_t kInTurnsFrom = 2 << 20;
/// A call's buffers are lent where that is to be faster by more than estimates are off.
constexpr double kWorthLending = 0.98;
/// So much of memory that is not aligned to vectors a block moves as fast as engines begin.
constexpr uint64_t kLittleThatIsAskew = 8192;
/// Of what is only moved, in place of the collective; that is where other calls have their operation. Above the numbers of all collectives
/// and of what takes a number among them; four bits each. 15 are launches of several calls (device_verdict.cc).
constexpr uint64_t kCopyMark = 14;
constexpr int kMarkShift = 60;
constexpr int kMovedShift = 52;
constexpr uint64_t kFourBits = 15;
static_assert(kCopyMark > static_cast<uint64_t>(exec::host::kShrinkCall) && kNumCollectives <= 16);

bool isMapped(Collective collective) { return collective == Collective::AllReduce || collective == Collective::ReduceScatter; }
template <size_t N>
bool isAmong(const std::array<Collective, N>& some, Collective collective) {
  return std::find(some.begin(), some.end(), collective) != some.end();
}
bool isCopied(Collective collective) { return isAmong(kCopied, collective) || isAmong(kCopiedIfLent, collective); }

/// 32 bits of a window and an offset: no two neighbouring places have the same.
uint32_t hashOf(const UserWindow& window, uint64_t offset) {
  uint64_t x = (window.number + 1) * 0x9e3779b97f4a7c15U ^ offset;
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9U;
  return static_cast<uint32_t>(x >> 32);
}

}  // namespace

uint64_t signatureOnWindows(const Call& call) {
  const uint64_t signature = exec::host::packSignature(exec::host::onWindows(call));
  if (reduces(call.collective)) return signature;
  const uint64_t rest = signature & ~(kFourBits << kMarkShift | kFourBits << kMovedShift);
  return rest | kCopyMark << kMarkShift | static_cast<uint64_t>(call.collective) << kMovedShift;
}

bool hasCopyMark(uint64_t signature) { return signature >> kMarkShift == kCopyMark; }

uint64_t withoutCopyMark(uint64_t signature) {
  if (!hasCopyMark(signature)) return signature;
  const uint64_t collective = signature >> kMovedShift & kFourBits;
  return (signature & ~(kFourBits << kMarkShift | kFourBits << kMovedShift)) | collective << kMarkShift;
}

bool goesOnlyLent(Collective collective) { return isAmong(kCopiedIfLent, collective); }

std::string DeviceWindows::obstacle(Collective collective) const {
  const bool combines = isMapped(collective);
  if (!combines && !isCopied(collective)) return "a reduce does not go that way";
  if (ranks_ < 2) return "there is nobody to share windows with";
  const When when = combines ? settings_.mapped : settings_.copyEngines;
  if (when == When::Never) return combines ? "TUTTI_MAPPED=0 forbids it" : "TUTTI_COPY_ENGINES=0 forbids it";
  if (endpoint_.usesHostMemory()) return "some GPUs do not reach each other's memory";
  if (ranks_ > exec::cuda::kMaxLocalRanks) return format("at most {} ranks map each other's windows", exec::cuda::kMaxLocalRanks);
  if (collective == Collective::SendRecv && settings_.streamStages == When::Never)
    return "of messages streams carry out the stages, and TUTTI_STREAM_STAGES=0, the driver or the links forbid it";
  if (combines && settings_.mappedBlocks < 1) return "its blocks do not fit onto the device beside those of other ranks";
  if (when == When::WherePossible || settings_.mapped == When::WherePossible) return {};
  for (const tune::Filter* filter : {&settings_.restrictions.nccl, &settings_.restrictions.tutti, &settings_.protocols})
    if (filter->restricts(collective)) return format("{} names kernels' ways", filter->source());
  if (settings_.tuner != nullptr) return "a tuner is asked, and knows kernels' ways alone";
  return {};
}

double DeviceWindows::estimateUs(const Call& call, const BufferTraits& traits) const {
  if (isMapped(call.collective)) return isCarried(call, traits) ? carriedShape(call).us : straightUs(call);
  if (call.isMessage()) return copyUs(call);
  switch (moverOf(call, traits)) {
    case Mover::Engines: return copyUs(call);
    case Mover::Block: return movedUs(call);
    case Mover::Blocks: break;
  }
  return movedTogetherUs(call);
}

bool DeviceWindows::isCarried(const Call& call, const BufferTraits& traits) const {
  if (call.collective != Collective::AllReduce || traits.isInPlace || settings_.copyEngines == When::Never) return false;
  if (carriedShare(call) == 0) return false;
  if (!settings_.movesLittle) return true;  // engines wherever they can
  if (traits.hasFinePages || settings_.mapped == When::WherePossible) return false;
  const double straight = weigh({straightUs(call), blocksOf(call)});
  if (weigh({tune::carriedAtLeastUs(settings_.machine, ranks_, carriedShare(call)), 1}) >= straight) return false;
  const CarriedShape shape = carriedShape(call);
  return weigh({shape.us, shape.blocks}) < straight;
}

double DeviceWindows::straightUs(const Call& call) const {
  const uint64_t share = std::min(shareElements(call), call.count) * sizeOf(call.type);
  return tune::mappedUs(settings_.machine, call.collective, ranks_, share, blocksOf(call));
}

/// Engines where blocks are wished away, or where most ranks' chunks begin between two vectors; several blocks only where that many are
/// allowed.
DeviceWindows::Mover DeviceWindows::moverOf(const Call& call, const BufferTraits& traits) const {
  const double oneUs = settings_.movesLittle ? movedUs(call) : std::numeric_limits<double>::infinity();
  const Mover few = oneUs < copyUs(call) ? Mover::Block : Mover::Engines;
  const bool isAskew = call.collective != Collective::Broadcast && chunkBytes(call) % exec::cuda::kVectorBytes != 0;
  if (isAskew && chunkBytes(call) > kLittleThatIsAskew) return few;
  if (settings_.copyEngines == When::WherePossible || settings_.mapped == When::Never) return few;
  const double togetherUs = blocksOf(call) < 2 ? std::numeric_limits<double>::infinity() : movedTogetherUs(call);
  if (settings_.mapped == When::WherePossible) return togetherUs < oneUs ? Mover::Blocks : Mover::Block;
  const double together = weigh({togetherUs, blocksOf(call)});
  if (few == Mover::Engines) {
    const double engines = weigh({copyUs(call), suitsStreams(call) ? 0 : 1});
    return !traits.hasFinePages && engines < together ? few : Mover::Blocks;
  }
  return weigh({oneUs, 1}) < together ? few : Mover::Blocks;
}

bool DeviceWindows::goInTurns(const Call& call) const { return !hasRoot(call.collective) && chunkBytes(call) >= kInTurnsFrom; }

double DeviceWindows::copyUs(const Call& call) const {
  const bool mayBeRelayed = call.collective == Collective::Broadcast && ranks_ > 2;
  return mayBeRelayed ? std::min(directUs(call), relayedUs(call)) : directUs(call);
}

double DeviceWindows::directUs(const Call& call) const {
  using tune::CopyOrder;
  if (call.isMessage()) return tune::copyUs(settings_.machine, 2, sentBytes(call), CopyOrder::ByOne, true);
  const bool isByOne = call.collective == Collective::Broadcast || call.collective == Collective::Scatter;
  const CopyOrder order = isByOne ? CopyOrder::ByOne : goInTurns(call) ? CopyOrder::InTurns : CopyOrder::AtOnce;
  return tune::copyUs(settings_.machine, ranks_, sentBytes(call), order, suitsStreams(call));
}

double DeviceWindows::movedUs(const Call& call) const {
  return tune::movedUs(settings_.machine, static_cast<uint64_t>(ranks_) * chunkBytes(call));
}

double DeviceWindows::movedTogetherUs(const Call& call) const {
  const int32_t blocks = blocksOf(call);
  const int32_t givers = exec::cuda::giversOf(blocks, ranks_ - 1, true);
  return tune::movedTogetherUs(settings_.machine, static_cast<uint64_t>(ranks_ - 1) * chunkBytes(call), blocks, givers);
}

tune::Way DeviceWindows::wayOf(const Call& call, const BufferTraits& traits) const {
  const double us = estimateUs(call, traits);
  if (isMapped(call.collective)) return {us, isCarried(call, traits) ? carriedShape(call).blocks : blocksOf(call)};
  if (call.isMessage() || hasStreamStages(call, traits)) return {us, 0};
  return {us, moverOf(call, traits) == Mover::Blocks ? blocksOf(call) : 1};
}

bool DeviceWindows::isTaken(const Call& call, const BufferTraits& traits, const tune::Way& kernel) const {
  if (call.isMessage() && (!hasStreamStages(call, traits) || (traits.hasFinePages && settings_.copyEngines != When::WherePossible)))
    return false;
  const bool isWished = isMapped(call.collective)
                            ? settings_.mapped == When::WherePossible || (!settings_.movesLittle && isCarried(call, traits))
                            : settings_.copyEngines == When::WherePossible ||
                                  (settings_.mapped == When::WherePossible && !call.isMessage() && moverOf(call, traits) != Mover::Engines);
  return isWished || weigh(wayOf(call, traits)) < (traits.isLent ? kWorthLending : 1) * weigh(kernel);
}

/// What one rank combines: of an all-reduce a share, whole lines but for the last.
uint64_t DeviceWindows::shareElements(const Call& call) const {
  if (call.collective != Collective::AllReduce) return call.count;
  const uint64_t line = exec::cuda::kLineBytes / sizeOf(call.type);
  const uint64_t each = (call.count + static_cast<uint64_t>(ranks_) - 1) / static_cast<uint64_t>(ranks_);
  return (each + line - 1) / line * line;
}

int32_t DeviceWindows::blocksOf(const Call& call) const {
  const bool combines = isMapped(call.collective);
  const uint64_t bytes = combines ? shareElements(call) * sizeOf(call.type) : chunkBytes(call) * static_cast<uint64_t>(ranks_);
  const uint64_t useful = bytes / kMappedBytes + 1;
  const int32_t wanted = std::max(settings_.minChannels, combines ? kMappedBlocks : ranks_ == 2 ? kPairsBlocks : kMovedBlocks);
  const int32_t most = std::max(1, std::min({settings_.maxChannels, settings_.mappedBlocks, wanted}));
  return static_cast<int32_t>(std::min<uint64_t>(useful, static_cast<uint64_t>(most)));
}

uint64_t DeviceWindows::outBytes(const Call& call) const {
  return call.collective == Collective::Broadcast ? chunkBytes(call) : chunkBytes(call) * static_cast<uint64_t>(ranks_);
}

Status DeviceWindows::checkBuffer(const UserWindow& window, DevicePtr address) const {
  const auto buffer = device_.gpu->driver().bufferOf(address);
  if (!buffer) return buffer.error();
  if (*buffer == window.buffer) return {};
  return error(Code::InvalidUsage,
               "the memory of window {}, {} bytes at {:#x}, was freed while it was registered: end a window (ncclCommWindowDeregister) "
               "before its memory is freed",
               window.number, window.bytes.value, window.base);
}

Status DeviceWindows::choose(WindowCall& made, const tune::Way& kernel) const {
  const Call& call = made.call;
  if (endpoint_.windows().isEmpty() || call.count == 0 || goesOnlyLent(call.collective) || !obstacle(call.collective).empty()) return {};
  if (!isTaken(call, made.traits(), kernel)) return {};
  return isMapped(call.collective) ? chooseMapped(made) : chooseCopies(made);
}

Status DeviceWindows::chooseCopies(WindowCall& made) const {
  const Call& call = made.call;
  auto window = endpoint_.windows().find(addressOf(made.out), outBytes(call));
  if (window == nullptr) return {};
  if (call.collective == Collective::AllToAll) {
    const DevicePtr in = addressOf(made.in);
    const DevicePtr out = addressOf(made.out);
    const auto from = endpoint_.windows().find(in, outBytes(call));
    if (from == nullptr || (in < out + outBytes(call) && out < in + outBytes(call))) return {};
    TUTTI_TRY(checkBuffer(*from, in));
  }
  TUTTI_TRY(checkBuffer(*window, addressOf(made.out)));
  made.window = std::move(window);
  return {};
}

/// Where the output of an all-reduce lies upon the input, but not in place, peers would overwrite what others have not read yet. Windows
/// are symmetric, so all ranks find it alike.
Status DeviceWindows::chooseMapped(WindowCall& made) const {
  const Call& call = made.call;
  if (call.opCode == kPreMulSumCode) return {};  // a rank does not know the factors of the others
  const DevicePtr in = addressOf(made.in);
  const DevicePtr out = addressOf(made.out);
  const bool isAllReduce = call.collective == Collective::AllReduce;
  const uint64_t inBytes = chunkBytes(call) * (isAllReduce ? 1 : static_cast<uint64_t>(ranks_));
  auto from = endpoint_.windows().find(in, inBytes);
  if (from == nullptr) return {};
  if (!isAllReduce) {
    TUTTI_TRY(checkBuffer(*from, in));
    made.window = std::move(from);
    return {};
  }
  auto to = endpoint_.windows().find(out, inBytes);
  if (to == nullptr || (in != out && in < out + inBytes && out < in + inBytes)) return {};
  TUTTI_TRY(checkBuffer(*from, in));
  TUTTI_TRY(checkBuffer(*to, out));
  made.inWindow = std::move(from);
  made.window = std::move(to);
  return {};
}

/// The own part comes last. Of scatter and gather a rank's own output is where its arguments say, and whoever the others do not write to
/// has no window.
std::vector<DeviceWindows::Piece> DeviceWindows::pieces(const WindowCall& copy) const {
  const Call& call = copy.call;
  const bool isByRoot = call.collective == Collective::Broadcast || call.collective == Collective::Scatter;
  const bool isPacked = !isByRoot;  // a rank's output has a chunk of each
  const bool isCut = call.collective == Collective::AllToAll || call.collective == Collective::Scatter;
  const bool isRoot = hasRoot(call.collective) && call.root == rank_.value;
  const uint64_t bytes = chunkBytes(call);
  const uint64_t offset = offsetOf(copy);
  std::vector<Piece> all;
  if (isByRoot && !isRoot) return all;
  for (int32_t step = 1; step <= ranks_; ++step) {
    const int32_t peer = (rank_.value + step) % ranks_;
    const bool isOwn = peer == rank_.value;
    if (call.collective == Collective::Gather && peer != call.root) continue;
    Piece piece{isOwn ? addressOf(copy.out) : copy.window->at[static_cast<size_t>(peer)] + offset, addressOf(copy.in), bytes, isOwn};
    if (isPacked) piece.to += static_cast<uint64_t>(rank_.value) * bytes;
    if (isCut) piece.from += static_cast<uint64_t>(peer) * bytes;
    if (piece.to != piece.from) all.push_back(piece);
  }
  return all;
}

/// Lent buffers are windows of their own. Of scatter and gather some ranks have none.
uint64_t DeviceWindows::offsetOf(const WindowCall& made) const {
  if (goesOnlyLent(made.call.collective)) return 0;
  return addressOf(made.call.collective == Collective::ReduceScatter ? made.in : made.out) - made.window->base;
}

/// What this rank does between the two kernels: its share of an all-reduce, from all inputs to all outputs, or its chunk of a
/// reduce-scatter.
exec::cuda::MappedLaunch DeviceWindows::mapped(const WindowCall& made) const {
  const Call& call = made.call;
  const bool isAllReduce = call.collective == Collective::AllReduce;
  const UserWindow& inputs = isAllReduce ? *made.inWindow : *made.window;
  const uint64_t first = std::min(shareElements(call) * static_cast<uint64_t>(rank_.value), isAllReduce ? call.count : UINT64_MAX);
  const uint64_t elements = isAllReduce ? std::min(shareElements(call), call.count - first) : call.count;
  const uint64_t begin = first * sizeOf(call.type);
  exec::cuda::MappedLaunch launch;
  launch.sources = ranks_;
  launch.targets = isAllReduce ? ranks_ : 1;
  const uint64_t fromOffset = addressOf(made.in) - inputs.base + begin;
  for (int32_t r = 0; r < ranks_; ++r)
    launch.source[r] = reinterpret_cast<const std::byte*>(inputs.at[static_cast<size_t>(r)] + fromOffset);
  if (isAllReduce) {
    const uint64_t toOffset = addressOf(made.out) - made.window->base + begin;
    for (int32_t t = 0; t < ranks_; ++t) {  // no two ranks store to the same peer first
      const auto peer = static_cast<size_t>((rank_.value + t + 1) % ranks_);
      launch.target[t] = reinterpret_cast<std::byte*>(made.window->at[peer] + toOffset);
    }
  } else {
    launch.target[0] = static_cast<std::byte*>(made.out);
  }
  launch.bytes = elements * sizeOf(call.type);
  launch.type = call.type;
  launch.op = made.op;
  launch.scaling = made.scaling;
  return launch;
}

uint32_t DeviceWindows::placeOf(const WindowCall& made) const {
  const uint32_t place = hashOf(*made.window, offsetOf(made));
  if (made.inWindow == nullptr)
    return isRelayed(made.call, made.traits()) ? ~place : place;  // ranks that count otherwise find each other elsewhere
  const uint32_t both = place ^ (hashOf(*made.inWindow, addressOf(made.in) - made.inWindow->base) * 0x9e3779b1U);
  if (!isCarried(made.call, made.traits())) return both;
  return ~both + static_cast<uint32_t>(carriedShape(made.call).parts);  // who has other parts meets as often as others do not
}

exec::cuda::CopyLaunch DeviceWindows::copyLaunch(const WindowCall& made) const {
  exec::cuda::CopyLaunch launch = endpoint_.copyLaunch();
  launch.wait.signature = signatureOnWindows(made.call);
  launch.place = placeOf(made);
  std::fill(std::begin(launch.placeOf), std::end(launch.placeOf), launch.place);
  const uint32_t others = ((uint32_t{1} << ranks_) - 1) & ~(uint32_t{1} << rank_.value);
  launch.writers = launch.written = others;
  if (hasRoot(made.call.collective)) {
    const bool isRoot = made.call.root == rank_.value;
    const uint32_t far = isRoot ? others : uint32_t{1} << made.call.root;
    const bool isRead = (made.call.collective == Collective::Gather) == isRoot;  // by this rank, from the others or the root
    launch.writers = isRead ? far : 0;
    launch.written = isRead ? 0 : far;
  }
  return launch;
}

Status DeviceWindows::launch(const WindowCall& made, Stream stream) {
  const exec::cuda::CopyLaunch launch = copyLaunch(made);
  if (isCarried(made.call, made.traits())) return carryAll(launch, made, stream);
  if (isMapped(made.call.collective)) {
    exec::cuda::MappedLaunch combine = mapped(made);
    combine.call = launch;
    const int32_t most = std::min(settings_.maxChannels, settings_.mappedBlocks);
    return executor_.mapped(combine, exec::cuda::makeGrid(blocksOf(made.call), most, settings_.mappedClusters), stream);
  }
  if (isRelayed(made.call, made.traits())) return relay(launch, made, stream);
  const std::vector<Piece> all = pieces(made);
  if (const Mover mover = moverOf(made.call, made.traits()); mover != Mover::Engines && suitsABlock(all))
    return moveAll(launch, made, all, mover == Mover::Blocks ? blocksOf(made.call) : 1, stream);
  const bool onStream = hasStreamStages(made.call, made.traits());
  TUTTI_TRY(stage(launch, CopyStage::Begin, 0, onStream, stream));
  TUTTI_TRY(copyAll(all, goInTurns(made.call), stream));
  return stage(launch, CopyStage::End, 0, onStream, stream);
}

/// A block moves memory that is askew word by word or slower, and engines do not care. Peers may do otherwise: all of them say the same to
/// each other.
bool DeviceWindows::suitsABlock(std::span<const Piece> pieces) {
  return std::all_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
    return piece.bytes <= kLittleThatIsAskew || (piece.to | piece.from) % exec::cuda::kVectorBytes == 0;
  });
}

/// A rank that has nothing to move needs one block to wait.
Status DeviceWindows::moveAll(const exec::cuda::CopyLaunch& launch, const WindowCall& made, std::span<const Piece> pieces, int32_t blocks,
                              Stream stream) {
  exec::cuda::MovedLaunch moved;
  moved.call = launch;
  moved.elementBytes = sizeOf(made.call.type);
  for (const Piece& piece : pieces)
    moved.piece[moved.pieces++] = {reinterpret_cast<const std::byte*>(piece.from), reinterpret_cast<std::byte*>(piece.to), piece.bytes};
  const bool hasOwn = !pieces.empty() && pieces.back().isOwn;
  moved.given = moved.pieces - (hasOwn ? 1 : 0);
  const int32_t most = std::min(settings_.maxChannels, settings_.mappedBlocks);
  const exec::cuda::Grid grid = moved.pieces > 0 ? exec::cuda::makeGrid(blocks, most, settings_.mappedClusters) : exec::cuda::Grid{1, 1};
  moved.givers = exec::cuda::giversOf(grid.blocks, moved.given, hasOwn);
  return executor_.moved(moved, grid, stream);
}

}  // namespace tutti::comm
