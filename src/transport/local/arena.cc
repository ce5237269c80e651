#include "transport/local/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::transport::local {

/// The first block of a shared file.
struct Arena::Header {
  /// "tuttera8": changes with every layout in here, those of pipes, windows and members included.
  static constexpr uint64_t kMagic = 0x3861726574747574;
  std::atomic<uint64_t> magic;  ///< by who made the file
  std::atomic<uint64_t> next;   ///< place of the next block; any process adds to it
  std::atomic<uint64_t> root;
};

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kEntriesAt = kPage;
constexpr uint64_t kControlBytes = kEntriesAt + Arena::kMostProcesses * sizeof(ProcessEntry);
/// No page of it exists before it is written, so that a file may be as large as all that could ever be needed.
constexpr uint64_t kFileBytes = uint64_t{1} << 46;

uint64_t roundToPages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// A file beyond RLIMIT_FSIZE would end the process with a signal.
uint64_t mostFileBytes() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kFileBytes;
  return std::min<uint64_t>(kFileBytes, limit.rlim_cur / kPage * kPage);
}

struct flock lockOf(uint64_t offset) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(offset);
  lock.l_len = 1;
  return lock;
}

}  // namespace

std::shared_ptr<Arena> Arena::ofThreads(int32_t self, std::shared_ptr<const void> owner) {
  auto arena = std::shared_ptr<Arena>(new Arena);
  arena->owner_ = std::move(owner);
  arena->members_ = {self};
  arena->self_ = self;
  return arena;
}

int32_t Arena::placeOf(int32_t process) const {
  const auto found = std::lower_bound(members_.begin(), members_.end(), process);
  return found != members_.end() && *found == process ? static_cast<int32_t>(found - members_.begin()) : -1;
}

Result<UniqueFd> Arena::createFile() {
  UniqueFd file(memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return fail(Code::SystemError, "cannot create memory to share (memfd_create): {}", std::strerror(errno));
  const uint64_t size = mostFileBytes();
  if (size < kControlBytes || ftruncate(file.get(), static_cast<off_t>(size)) != 0)
    return fail(Code::SystemError, "cannot give a memfd {} bytes: {}", size, size < kControlBytes ? "RLIMIT_FSIZE" : std::strerror(errno));
  // Nobody who holds the descriptor can take the memory away under the others.
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0)
    return fail(Code::SystemError, "cannot seal memory to share: {}", std::strerror(errno));
  auto control = memory::Mapping::ofFile(file.get(), 0, Bytes(kPage));
  if (!control) return tl::unexpected(std::move(control).error());
  auto* header = reinterpret_cast<Header*>(control->data());
  header->next.store(roundToPages(kControlBytes), std::memory_order_relaxed);
  header->magic.store(Header::kMagic, std::memory_order_release);
  return file;
}

Result<std::shared_ptr<Arena>> Arena::attach(int file, std::shared_ptr<const void> owner, std::vector<int32_t> members, int32_t self) {
  if (members.size() > kMostProcesses)
    return fail(Code::InvalidUsage, "{} processes on one host: at most {} can share memory; run several ranks in each", members.size(),
                kMostProcesses);
  struct stat info{};
  if (fstat(file, &info) != 0 || static_cast<uint64_t>(info.st_size) < kControlBytes)
    return fail(Code::SystemError, "what came for shared memory is none: descriptor {} of {} bytes", file, info.st_size);
  if (const int seals = fcntl(file, F_GET_SEALS); seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return fail(Code::SystemError, "what came for shared memory is none: others can take it away");
  auto control = memory::Mapping::ofFile(file, 0, Bytes(kControlBytes));
  if (!control) return tl::unexpected(std::move(control).error());
  auto arena = std::shared_ptr<Arena>(new Arena);
  arena->header_ = reinterpret_cast<Header*>(control->data());
  if (arena->header_->magic.load(std::memory_order_acquire) != Header::kMagic)
    return fail(Code::InvalidUsage, "the processes of this host do not use the same version of this library");
  arena->entries_ = reinterpret_cast<ProcessEntry*>(control->data() + kEntriesAt);
  arena->root_ = &arena->header_->root;
  arena->control_ = std::move(*control);
  arena->file_ = file;
  arena->fileBytes_ = static_cast<uint64_t>(info.st_size);
  arena->owner_ = std::move(owner);
  arena->members_ = std::move(members);
  arena->self_ = self;
  if (self < 0) return arena;
  struct flock lock = lockOf(lockOffset(arena->placeOf(self)));
  if (fcntl(file, F_SETLK, &lock) != 0)
    return fail(Code::SystemError, "cannot lock the file of shared memory: {}", std::strerror(errno));
  return arena;
}

Result<uint64_t> Arena::reserve(Bytes size) {
  if (isShared()) {
    const uint64_t bytes = roundToPages(size.value);
    uint64_t place = header_->next.load(std::memory_order_relaxed);
    do {  // not past the end, ever: who fails leaves it as it was
      if (size.value > kFileBytes || place + bytes > fileBytes_)
        return fail(Code::SystemError, "cannot share {} bytes: {} of the {} that RLIMIT_FSIZE of the first process allowed are in use",
                    size.value, place, fileBytes_);
    } while (!header_->next.compare_exchange_weak(place, place + bytes, std::memory_order_relaxed));
    return place;
  }
  auto block = memory::Mapping::anonymous(size);
  if (!block) return tl::unexpected(std::move(block).error());
  const auto place = reinterpret_cast<uint64_t>(block->data());
  const std::lock_guard lock(mutex_);
  blocks_.emplace(place, std::move(*block));
  return place;
}

Result<std::byte*> Arena::map(uint64_t place, Bytes size) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(place);
  if (found != blocks_.end() && found->second.size() >= size) return found->second.data();
  // Places in a shared file may come from other processes. Behind its end there is no memory: who looked there would end with a signal.
  if (found != blocks_.end() || !isShared() || place < roundToPages(kControlBytes) || place > fileBytes_ || size.value > fileBytes_ - place)
    return fail(Code::InternalError, "no block of {} bytes lies at {:x}", size.value, place);
  auto block = memory::Mapping::ofFile(file_, place, size);
  if (!block) return tl::unexpected(std::move(block).error());
  return blocks_.emplace(place, std::move(*block)).first->second.data();
}

void Arena::unmap(uint64_t place) noexcept {
  const std::lock_guard lock(mutex_);
  blocks_.erase(place);
}

void Arena::discard(uint64_t place, Bytes size) noexcept {
  unmap(place);
  if (isShared())
    (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(place),
                    static_cast<off_t>(roundToPages(size.value)));
}

void Arena::announce(uint64_t token, int exportsFd) {
  token_ = token;
  ProcessEntry& own = entries_[placeOf(self_)];
  own.pid.store(getpid(), std::memory_order_relaxed);
  own.token.store(token, std::memory_order_relaxed);
  own.probe.store(reinterpret_cast<uint64_t>(&token_), std::memory_order_relaxed);
  own.exportsFd.store(exportsFd + 1, std::memory_order_relaxed);
  own.attached.store(1, std::memory_order_release);  // pairs with entry()
}

std::vector<std::shared_ptr<Hub>> Arena::hubs() {
  const std::lock_guard lock(hubsMutex_);
  std::vector<std::shared_ptr<Hub>> alive;
  for (const auto& [place, known] : hubs_)
    if (auto hub = known.lock()) alive.push_back(std::move(hub));
  return alive;
}

const ProcessEntry* Arena::entry(int32_t process) const {
  const int32_t place = placeOf(process);
  if (entries_ == nullptr || place < 0 || entries_[place].attached.load(std::memory_order_acquire) == 0) return nullptr;
  return &entries_[place];
}

void Arena::lose(int32_t process, const Status& cause) {
  const std::lock_guard lock(lossesMutex_);
  losses_.emplace(process, cause);
}

std::map<int32_t, Status> Arena::losses() const {
  const std::lock_guard lock(lossesMutex_);
  return losses_;
}

bool Arena::isAlive(int32_t process) const {
  if (process == self_) return true;
  {
    const std::lock_guard lock(lossesMutex_);
    if (losses_.contains(process)) return false;
  }
  return isRunning(process);
}

bool Arena::isRunning(int32_t process) const {
  if (process == self_ || entry(process) == nullptr) return true;
  struct flock lock = lockOf(lockOffset(placeOf(process)));
  return fcntl(file_, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

bool Arena::isComplete() const {
  return !isShared() || std::all_of(members_.begin(), members_.end(), [this](int32_t p) { return entry(p) != nullptr; });
}

}  // namespace tutti::transport::local
