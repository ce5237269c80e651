#include "transport/local/hub.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/format.h"
#include "core/host_name.h"
#include "core/process_barrier.h"

namespace tutti::transport::local {
namespace {

/// Whether others can make every running thread of this process execute a full barrier, so that enter() can do without one: those of
/// this process, or those of other processes, too.
bool takesBarriers(bool fromOthers) { return takesProcessBarriers() && (!fromOthers || takesBarriersOfOthers()); }

/// What is listed: the first part of a Key.
constexpr int32_t kPipe = 0;
constexpr int32_t kWindow = 1;
constexpr int32_t kNamed = 2;
constexpr int32_t kDevices = 3;

constexpr uint64_t kPage = 4096;
uint64_t roundToPages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

/// Entries of the list of pipes and windows; written under the hub's lock.
struct Hub::Page {
  static constexpr uint64_t kBytes = 16 * kPage;
  static constexpr size_t kEntries = (kBytes - 16) / sizeof(Listed);
  uint64_t next;  ///< place of the next page, or 0
  uint64_t count;
  Listed entries[kEntries];
};

/// The head of a hub in its arena. Behind it: the process of each rank, the members, what Waits keeps.
struct Hub::Block {
  SharedMutex mutex;
  uint64_t id;
  std::atomic<uint32_t> holders;  ///< ranks that have not let go yet
  int32_t ranks;
  uint64_t firstPage;
};

uint64_t Hub::blockBytes(int32_t ranks) {
  const auto n = static_cast<uint64_t>(ranks);
  return kPage + roundToPages(n * sizeof(int32_t)) + roundToPages(n * sizeof(Member)) + Waits::bytesFor(ranks);
}

Status Hub::look(std::byte* memory, int32_t ranks) {
  const auto n = static_cast<uint64_t>(ranks);
  static_assert(sizeof(Block) <= kPage);
  ranks_ = ranks;
  block_ = reinterpret_cast<Block*>(memory);
  memory += kPage;
  processOf_ = reinterpret_cast<const int32_t*>(memory);
  memory += roundToPages(n * sizeof(int32_t));
  members_ = reinterpret_cast<Member*>(memory);
  memory += roundToPages(n * sizeof(Member));
  if (block_->ranks != ranks) return error(Code::InternalError, "a hub of {} ranks where one of {} was expected", block_->ranks, ranks);
  if (std::any_of(processOf_, processOf_ + ranks, [](int32_t process) { return process < 0; }))
    return error(Code::InternalError, "a rank of a hub is in no process");
  for (int32_t r = 0; r < ranks; ++r) {
    spansProcesses_ = spansProcesses_ || !isHere(Rank(r));
    spansHosts_ = spansHosts_ || !isOnHost(Rank(r));
    if (firstHere_ < 0 && isHere(Rank(r))) firstHere_ = r;
  }
  patience_.explain = [this](std::chrono::milliseconds waited) {
    const Say say = say_.load(std::memory_order_relaxed);
    if (say != nullptr)
      say(tutti::format("this process has waited for {} ms for {}, which has the lock of what ranks share: it may have been stopped",
                        waited.count(), describeHolder()));
  };
  patience_.hasFailed = [this] { return firstHere_ >= 0 && members_[firstHere_].latch.tripped(); };
  const bool needsFence = !takesBarriers(arena_->isShared());
  for (int32_t r = 0; needsFence && r < ranks; ++r)
    if (isHere(Rank(r))) members_[r].needsFence = true;
  waits_ = std::make_unique<Waits>(ranks, block_->mutex, patience_, memory);
  return {};
}

Result<std::shared_ptr<Hub>> Hub::make(int32_t ranks) {
  auto arena = Arena::ofThreads();
  const auto place = format(*arena, 0, std::vector<int32_t>(static_cast<size_t>(ranks)));
  if (!place) return tl::unexpected(place.error());
  auto hub = open(std::move(arena), *place, ranks);
  if (hub) (*hub)->holds_ = static_cast<uint32_t>(ranks);
  return hub;
}

uint64_t Hub::id() const { return block_->id; }

/// How many ranks of this host hold the hub: those of other hosts have one of their own.
uint32_t Hub::countHolders(const Arena& arena, std::span<const int32_t> processOf) {
  return static_cast<uint32_t>(std::count_if(processOf.begin(), processOf.end(), [&](int32_t p) { return arena.isOnHost(p); }));
}

Result<uint64_t> Hub::format(Arena& arena, uint64_t id, std::span<const int32_t> processOf) {
  const auto ranks = static_cast<int32_t>(processOf.size());
  const Bytes bytes(blockBytes(ranks));
  const auto place = arena.reserve(bytes);
  if (!place) return tl::unexpected(place.error());
  const auto memory = arena.map(*place, bytes);
  if (!memory) return tl::unexpected(memory.error());
  auto* block = reinterpret_cast<Block*>(*memory);
  block->mutex.init();
  block->ranks = ranks;
  block->id = id;
  block->holders.store(countHolders(arena, processOf), std::memory_order_relaxed);
  std::copy(processOf.begin(), processOf.end(), reinterpret_cast<int32_t*>(*memory + kPage));
  return *place;
}

Result<std::shared_ptr<Hub>> Hub::attach(const std::shared_ptr<Arena>& arena, uint64_t place, int32_t ranks) {
  const std::lock_guard lock(arena->hubsMutex_);
  std::erase_if(arena->hubs_, [](const auto& known) { return known.second.expired(); });
  auto hub = arena->hubs_[place].lock();
  if (hub == nullptr) {
    auto opened = open(arena, place, ranks);
    if (!opened) return opened;
    hub = std::move(*opened);
    arena->hubs_[place] = hub;
  }
  ++hub->holds_;
  return hub;
}

Result<std::shared_ptr<Hub>> Hub::open(std::shared_ptr<Arena> arena, uint64_t place, int32_t ranks) {
  const auto memory = arena->map(place, Bytes(blockBytes(ranks)));
  if (!memory) return tl::unexpected(Status(memory.error()).at("attach hub"));
  auto hub = std::shared_ptr<Hub>(new Hub);
  hub->arena_ = std::move(arena);
  hub->place_ = place;
  if (Status status = hub->look(*memory, ranks); !status.ok()) {
    hub->block_ = nullptr;  // it is none: nothing there is let go of
    return tl::unexpected(std::move(status));
  }
  return hub;
}

Hub::~Hub() {
  if (block_ == nullptr) return;
  // Every process lets go of its own view, while it still holds the hub; the last gives the contents back: the file lives on.
  if (arena_->isShared()) endAll([&](uint64_t place, uint64_t) { arena_->unmap(place); });
  // acq_rel: whoever is last sees that all others have done with it
  const bool isLast = block_->holders.fetch_sub(holds_, std::memory_order_acq_rel) == holds_;
  if (isLast) endAll([&](uint64_t place, uint64_t bytes) { arena_->discard(place, Bytes(bytes)); });
  waits_.reset();
  if (isLast) {
    arena_->discard(place_, Bytes(blockBytes(ranks_)));
  } else if (arena_->isShared()) {  // in one of threads, ranks that have not attached yet would find nothing
    arena_->unmap(place_);
  }
}

/// Calls end(place, bytes) for all that the hub lists, and for the list.
template <class End>
void Hub::endAll(End&& end) noexcept {
  uint64_t before = place_;
  for (uint64_t at = block_->firstPage; at != 0 && isBehind(at, before);) {
    const auto memory = arena_->map(at, Bytes(Page::kBytes));
    if (!memory) break;
    const auto* page = reinterpret_cast<const Page*>(*memory);
    for (size_t i = 0; i < std::min<uint64_t>(page->count, Page::kEntries); ++i)
      if (page->entries[i].forgotten == 0) end(page->entries[i].lies.place, page->entries[i].lies.bytes);
    before = at;
    at = page->next;
    end(before, Page::kBytes);
  }
}

Way Hub::wayTo(Rank rank) const {
  if (!isOnHost(rank) && remote() != nullptr) return remote()->wayTo(rank);
  std::string host = hostName();
  return {host, "shared memory of " + host};
}

void Hub::failAll(const Status& cause, bool tellsOthers) {
  bool isNews = false;
  for (int32_t r = 0; r < ranks_; ++r) isNews = members_[r].latch.trip(cause) || isNews;
  stopDevices();
  Remote* const others = remote();
  if (!isNews || others == nullptr) return;
  if (tellsOthers) others->failed(cause);
  others->haveCome();
}

void Hub::failAll(Code code) noexcept {
  for (int32_t r = 0; r < ranks_; ++r) members_[r].latch.trip(code);
  stopDevices();
}

/// Kernels of all ranks look at the word, whichever process they are of (exec/cuda/verdict.h).
void Hub::stopDevices() noexcept {
  uint32_t* const abort = deviceAbort_.load(std::memory_order_acquire);  // pairs with devicePage()
  if (abort != nullptr) std::atomic_ref<uint32_t>(*abort).store(1, std::memory_order_relaxed);
}

/// In a file each block is behind those that there were before: a list that goes back is none, and may have no end.
bool Hub::isBehind(uint64_t at, uint64_t before) const {
  return !arena_->isShared() || at >= before + (before == place_ ? blockBytes(ranks_) : Page::kBytes);
}

/// Reads what has been listed since the last time. Under the hub's lock.
Status Hub::catchUp() {
  for (;;) {
    if (page_ == nullptr) {
      const uint64_t at = lastPage_ == nullptr ? block_->firstPage : lastPage_->next;
      if (at == 0) return {};
      if (!isBehind(at, lastPagePlace_ == 0 ? place_ : lastPagePlace_))
        return error(Code::InternalError, "the list of what ranks share is damaged");
      const auto memory = arena_->map(at, Bytes(Page::kBytes));
      if (!memory) return memory.error();
      lastPage_ = page_ = reinterpret_cast<Page*>(*memory);
      lastPagePlace_ = at;
      seen_ = 0;
    }
    for (; seen_ < std::min<uint64_t>(page_->count, Page::kEntries); ++seen_) {
      Listed& entry = page_->entries[seen_];
      if (entry.forgotten == 0) listed_.emplace(entry.key, &entry);
    }
    if (seen_ < Page::kEntries || page_->next == 0) return {};
    page_ = nullptr;
  }
}

/// Puts an entry behind the last one. Under the hub's lock, after catchUp().
Status Hub::append(const Listed& entry) {
  if (page_ == nullptr || seen_ == Page::kEntries) {
    const auto place = arena_->reserve(Bytes(Page::kBytes));
    if (!place) return place.error();
    (lastPage_ == nullptr ? block_->firstPage : lastPage_->next) = *place;
    page_ = nullptr;
    TUTTI_TRY(catchUp());
  }
  page_->entries[page_->count] = entry;
  ++page_->count;  // last: who dies before leaves nothing behind
  return catchUp();
}

/// Where the block of that name lies, and how large its parts are; made as `wanted` says if there is none yet. Under both locks.
Result<Hub::Lies> Hub::findOrMake(const Key& key, const Lies& wanted) {
  if (Status status = catchUp(); !status.ok()) return tl::unexpected(std::move(status));
  if (const auto found = listed_.find(key); found != listed_.end()) {
    if (found->second->forgotten == 0 || users_.count(key) != 0) return found->second->lies;
    listed_.erase(found);
  }
  const auto place = arena_->reserve(Bytes(wanted.bytes));
  if (!place) return tl::unexpected(place.error());
  Lies made = wanted;
  made.place = *place;
  if (Status status = append({key, made, 0}); !status.ok()) return tl::unexpected(std::move(status));
  return made;
}

Result<PipeView> Hub::pipe(const PipeKey& key, uint32_t slots, uint64_t slotBytes) {
  if (!isOnHost(key.to)) return remote()->sendHalf(key, slots, slotBytes);
  if (!isOnHost(key.from)) return remote()->receiveHalf(key, slots, slotBytes);
  SharedLock shared(block_->mutex, patience_);
  if (!shared) return tl::unexpected(lockLost().at("create pipe"));
  std::unique_lock own(mutex_);
  const auto lies = findOrMake({kPipe, key.channel.value, key.port, key.from.value, key.to.value},
                               {0, pipeBytes(slots, slotBytes), slotBytes, slots});
  if (!lies) return tl::unexpected(Status(lies.error()).at("create pipe"));
  const auto memory = arena_->map(lies->place, Bytes(lies->bytes));
  if (!memory) return tl::unexpected(memory.error());
  const PipeView view = pipeIn(*memory, lies->count, lies->partBytes, ranks_);
  own.unlock();
  shared.unlock();
  if (isHere(key.to)) view.freed->reach.store(reach(key.from), std::memory_order_release);  // pairs with SendEnd::reach
  return view;
}

SharedMutex& Hub::mutex() const { return block_->mutex; }

namespace {

constexpr std::array<int32_t, 5> keyOf(const Hub::Name& name) { return {kNamed, name[0], name[1], name[2], name[3]}; }

}  // namespace

/// Under mutex_. Null when it cannot be mapped.
std::byte* Hub::use(const Key& key, const Lies& lies) {
  const auto memory = arena_->map(lies.place, Bytes(lies.bytes));
  if (!memory) return nullptr;
  ++users_[key];
  return *memory;
}

Result<std::byte*> Hub::block(const Name& name, Bytes size) {
  const SharedLock shared = lock(Patience::kSlice);
  if (!shared) return nullptr;
  const std::lock_guard own(mutex_);
  const auto lies = findOrMake(keyOf(name), {0, size.value, 0, 0});
  if (!lies) return tl::unexpected(lies.error());
  std::byte* memory = use(keyOf(name), *lies);
  if (memory == nullptr) return fail(Code::SystemError, "cannot map {} bytes that ranks share", size.value);
  return memory;
}

Result<std::byte*> Hub::devicePage(Bytes size) {
  const SharedLock shared(block_->mutex, patience_);
  if (!shared) return tl::unexpected(lockLost());
  const std::lock_guard own(mutex_);
  const auto lies = findOrMake({kDevices, 0, 0, 0, 0}, {0, size.value, 0, 0});
  if (!lies) return tl::unexpected(lies.error());
  if (lies->bytes != size.value) return fail(Code::InvalidUsage, "the processes of this host do not use the same version of this library");
  auto memory = arena_->map(lies->place, size);
  if (!memory) return tl::unexpected(memory.error());
  deviceAbort_.store(reinterpret_cast<uint32_t*>(*memory), std::memory_order_release);  // pairs with stopDevices()
  return memory;
}

std::byte* Hub::existing(const Name& name) {
  const SharedLock shared = lock(Patience::kSlice);
  const std::lock_guard own(mutex_);
  const auto found = listed_.find(keyOf(name));
  return !shared || found == listed_.end() || found->second->forgotten != 0 ? nullptr : use(found->first, found->second->lies);
}

/// In a process of several the block can be mapped again; one of threads alone is all there is of it, and stays.
void Hub::release(const Name& name) noexcept {
  const std::lock_guard lock(mutex_);
  const auto users = users_.find(keyOf(name));
  if (users == users_.end() || --users->second > 0) return;
  users_.erase(users);
  const auto found = listed_.find(keyOf(name));
  if (found == listed_.end()) return;
  const Lies lies = found->second->lies;
  if (found->second->forgotten != 0) {  // written once, before this; by another process at the latest before its own discard()
    listed_.erase(found);
    arena_->discard(lies.place, Bytes(lies.bytes));
  } else if (arena_->isShared()) {
    arena_->unmap(lies.place);
  }
}

void Hub::forget(const Name& name) {
  const SharedLock shared = lock(Patience::kBrief);
  const std::lock_guard own(mutex_);
  const auto found = listed_.find(keyOf(name));
  if (!shared || found == listed_.end() || found->second->forgotten != 0) return;
  found->second->forgotten = 1;  // before its contents go: who dies in between leaves a block that nobody looks at
  if (users_.count(found->first) != 0) return;  // the last of them gives it back
  arena_->discard(found->second->lies.place, Bytes(found->second->lies.bytes));
  listed_.erase(found);
}

void Hub::keepChild(uint64_t place, int32_t ranksHere, std::shared_ptr<Hub> child) {
  Kept ended;  // destroyed after the lock is gone
  const std::lock_guard lock(mutex_);
  const auto [at, isNew] = children_.try_emplace(place);
  if (isNew) at->second.awaited = ranksHere;
  if (child != nullptr) at->second.hub = std::move(child);
  if (--at->second.awaited > 0) return;
  ended = std::move(at->second);
  children_.erase(at);
}

Result<std::vector<Hub::Name>> Hub::blocks() {
  const SharedLock shared = lock(Patience::kSlice);
  if (!shared) return std::vector<Name>();
  const std::lock_guard own(mutex_);
  if (Status status = catchUp(); !status.ok()) return tl::unexpected(std::move(status));
  std::vector<Name> names;
  for (const auto& [key, entry] : listed_)
    if (key[0] == kNamed && entry->forgotten == 0) names.push_back({key[1], key[2], key[3], key[4]});
  return names;
}

Result<WindowView> Hub::window(Rank rank, uint64_t cellBytes) {
  SharedLock shared(block_->mutex, patience_);
  if (!shared) return tl::unexpected(lockLost().at("create window"));
  std::unique_lock own(mutex_);
  const auto lies = findOrMake({kWindow, 0, 0, rank.value, 0}, {0, windowBytes(ranks_, cellBytes), cellBytes, 0});
  if (!lies) return tl::unexpected(Status(lies.error()).at("create window"));
  const auto memory = arena_->map(lies->place, Bytes(lies->bytes));
  if (!memory) return tl::unexpected(memory.error());
  const WindowView view = windowIn(*memory, ranks_, lies->partBytes);
  own.unlock();
  shared.unlock();
  for (int32_t r = 0; isHere(rank) && r < ranks_; ++r)
    view.returned[r].reach.store(reach(Rank(r)), std::memory_order_release);  // pairs with the writers' acquire
  return view;
}

}  // namespace tutti::transport::local
