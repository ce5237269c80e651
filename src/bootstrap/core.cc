#include "bootstrap/core.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "bootstrap/fixed_id.h"
#include "bootstrap/job.h"
#include "bootstrap/last_words.h"
#include "bootstrap/mesh_core.h"
#include "bootstrap/root.h"
#include "observe/log.h"

namespace tutti::bootstrap {
namespace {

constexpr std::chrono::seconds kLinger(2);

}  // namespace

Lease::Lease(Reactor& r, ReactorHold h, std::shared_ptr<Listener> l, std::vector<Address> a)
    : reactor(r), hold(std::move(h)), listener(std::move(l)), addresses(std::move(a)) {}

Lease::~Lease() {
  reactor.post([closed = listener] { closed->close(); });
}

Core::Core(const World& world, Status crypto)
    : token(crypto.ok() ? randomNumber() : 0), world_(world), pid_(getpid()), crypto_(std::move(crypto)) {}

bool Core::isOfThisProcess() const { return pid_ == getpid(); }

const Settings& Core::settings() { return settings_ ? *settings_ : settings_.emplace(world_.settings()); }

Member Core::describeSelf(const std::vector<Address>& addresses) {
  HostFacts host = host_ ? *host_ : world_.host();
  if (!host.bootId.empty()) host_ = host;  // without a descriptor it is not to be had
  return {token, static_cast<int32_t>(pid_), identityOf(host, settings().hostId), std::move(host.name), addresses};
}

Result<std::shared_ptr<Lease>> Core::makeLease(std::vector<UniqueFd> fds, std::vector<Address> addresses) {
  if (Status held = reactor.hold(settings().namesThreads); !held.ok()) return tl::unexpected(std::move(held));
  ReactorHold hold(reactor);
  auto listener = std::make_shared<Listener>(
      reactor, std::move(fds), [this](Purpose purpose, uint64_t topic) { return findSecret(purpose, topic); },
      [this](Established connection) { onEstablished(std::move(connection)); },
      [this](Purpose purpose, uint64_t topic, const Status& cause) { onLack(purpose, topic, cause); });
  reactor.post([listener] { listener->start(); });
  return std::make_shared<Lease>(reactor, std::move(hold), std::move(listener), std::move(addresses));
}

Result<std::shared_ptr<Lease>> Core::lease() {
  if (auto open = lease_.lock()) return open;
  const auto all = world_.interfaces();
  if (!all) return tl::unexpected(all.error());
  auto choice = chooseInterfaces(*all, settings().interfaceNames, parseFamily(settings().family));
  if (!choice) return tl::unexpected(std::move(choice).error());
  std::vector<UniqueFd> fds;
  std::vector<Address> addresses;
  Status last;
  for (Candidate& candidate : choice->candidates) {
    const Interface& interface = candidate.interface;
    if (!candidate.refusal.empty()) continue;
    if (addresses.size() == kMostAddresses) {
      candidate.refusal = format("a process offers {} addresses", kMostAddresses);
      continue;
    }
    auto fd = listenAt(toSocketAddress(interface.address), describe(interface.address));
    auto address = fd ? listeningAddress(*fd) : tl::unexpected(fd.error());
    if (!address) {
      last = address.error();
      candidate.refusal = last.text();
      continue;
    }
    const std::string text = describe(*address);
    observe::info(observe::Subsys::Bootstrap, "Bootstrap: Using {}:{}<{}>", interface.name,
                  std::string_view(text).substr(0, text.rfind(':')), address->port);
    fds.push_back(std::move(*fd));
    addresses.push_back(*address);
  }
  for (const std::string& line : choice->table())
    observe::info(observe::Subsys::Init | observe::Subsys::Net, "Bootstrap: interface{}", line);
  if (fds.empty()) return tl::unexpected(std::move(last));
  auto made = makeLease(std::move(fds), std::move(addresses));
  if (made) lease_ = *made;
  return made;
}

Result<std::shared_ptr<Lease>> Core::leaseAt(const std::vector<Address>& addresses) {
  std::vector<UniqueFd> fds;
  std::string problems;
  Code code = Code::SystemError;
  for (const Address& address : addresses) {
    auto fd = listenAt(toSocketAddress(address), describe(address));
    if (fd) {
      fds.push_back(std::move(*fd));
      continue;
    }
    problems += (problems.empty() ? "" : "; ") + fd.error().text();
    if (fd.error().code() == Code::InvalidUsage) code = Code::InvalidUsage;
  }
  if (fds.empty()) return fail(code, "rank 0 cannot be reached at NCCL_COMM_ID: {}", problems);
  return makeLease(std::move(fds), addresses);
}

Result<UniqueIdBytes> Core::makeId() {
  if (!crypto_.ok()) return tl::unexpected(crypto_);
  const std::lock_guard lock(mutex);
  if (hasEnded_) return fail(Code::InvalidUsage, "the service that connects processes has ended");
  settings_.reset();  // as they are now
  if (!settings().commId.empty()) return makeFixedId(settings().commId);
  auto door = lease();
  if (!door) {
    // Ranks that are threads of this process need no network; whoever asked for a certain one is told.
    if (!settings().interfaceNames.empty() || parseFamily(settings().family) != Family::Any) return tl::unexpected(door.error());
    observe::warn("bootstrap: ranks of other processes cannot use the unique id made here: {}", door.error().text());
  }
  UniqueId id;
  id.hash = randomNumber();
  id.maker = token;
  id.pid = static_cast<int32_t>(pid_);
  fillRandom(id.secret);
  if (door) id.addresses = (*door)->addresses;
  for (size_t a = id.fitting(); a < id.addresses.size(); ++a)
    observe::info(observe::Subsys::Init | observe::Subsys::Net,
                  "Bootstrap: the unique id has no room for {}: ranks come to its root at the addresses before it",
                  describe(id.addresses[a]));
  roots_[id.hash] = std::make_shared<Root>(shared_from_this(), id, door ? *door : nullptr);
  return id.encode();
}

Result<UniqueIdBytes> Core::makeFixedId(const std::string& where) {
  auto id = fixedId(where, settings().jobSecret);
  if (!id) return tl::unexpected(id.error());
  return id->encode();
}

std::shared_ptr<Root> Core::findRoot(const UniqueId& id) {
  const auto found = roots_.find(id.hash);
  return found != roots_.end() && found->second->id().secret == id.secret ? found->second : nullptr;
}

/// In the process of rank 0 alone, so that a job says it once.
void Core::sayIfOpen() {
  if (!settings().jobSecret.empty() || std::exchange(saidOpen_, true)) return;
  observe::warn(
      "bootstrap: NCCL_COMM_ID is set and TUTTI_JOB_SECRET is not: connections are not authenticated, whoever reaches {} can take part",
      settings().commId);
}

Status Core::openFixedRoot(const UniqueId& id) {
  if (roots_.count(id.hash) != 0) return {};
  failedFixed_.erase(id.hash);
  sayIfOpen();
  auto door = leaseAt(id.addresses);
  const bool isTaken = !door && door.error().code() == Code::InvalidUsage;  // perhaps by the communicator before this one
  if (isTaken) door = lease();
  if (!door) return door.error();
  const auto root = std::make_shared<Root>(shared_from_this(), id, std::move(*door));
  roots_[id.hash] = root;
  if (isTaken) root->listenLater(0);
  return {};
}

Result<std::shared_ptr<Job>> Core::findJob(std::span<const UniqueIdBytes> raw, int32_t ranks, Rank rank) {
  if (ranks < 1 || ranks > kMostRanks || rank.value < 0 || rank.value >= ranks)
    return fail(Code::InvalidArgument, "there is no rank {} of {}", rank.value, ranks);
  if (raw.empty() || raw.size() > static_cast<size_t>(ranks))
    return fail(Code::InvalidArgument, "{} unique ids for {} ranks: there must be 1 to {}", raw.size(), ranks, ranks);
  std::vector<UniqueId> ids;
  bool isOutside = false;  // others must be reached, or may come
  for (const UniqueIdBytes& bytes : raw) {
    auto id = UniqueId::decode(bytes);
    if (!id) return tl::unexpected(id.error());
    if (const auto served = served_.find(id->hash); served != served_.end() && served->second.secret == id->secret)
      return tl::unexpected(fateOf(id->hash));
    if (id->isFixed && raw.size() > 1) return fail(Code::InvalidUsage, "NCCL_COMM_ID makes one unique id: {} are given", raw.size());
    isOutside = isOutside || id->isFixed || findRoot(*id) == nullptr;
    ids.push_back(std::move(*id));
  }
  if (ids.front().isFixed && rank.value == 0) {
    if (Status opened = openFixedRoot(ids.front()); !opened.ok()) return tl::unexpected(std::move(opened));
  }
  std::shared_ptr<Job>& job = jobs_[ids.front().hash];
  if (job && !job->isOf(raw)) return fail(Code::InvalidArgument, "rank {} gives other unique ids than the ranks before it", rank.value);
  if (job) return job;
  std::shared_ptr<Lease> door = lease_.lock();
  if (isOutside && !door) {
    auto opened = lease();
    if (!opened) {
      jobs_.erase(ids.front().hash);
      return tl::unexpected(opened.error());
    }
    door = std::move(*opened);
  }
  job = std::make_shared<Job>(shared_from_this(), std::move(ids), std::vector(raw.begin(), raw.end()), ranks, std::move(door));
  return job;
}

Status Core::inOwnName(std::string_view whom, const Status& cause) const {
  return error(cause.code(), "{} (process {} on {}): {}", whom, pid_, world_.host().name, cause.text());
}

std::vector<UniqueId> Core::rootsToTell(std::span<const UniqueIdBytes> raw, int32_t ranks, Rank rank) const {
  std::vector<size_t> wanted{static_cast<size_t>(blockOf(rank.value, ranks, static_cast<int32_t>(raw.size())).index)};
  if (wanted.front() != 0) wanted.push_back(0);
  std::vector<UniqueId> roots;
  for (const size_t index : wanted) {
    auto id = UniqueId::decode(raw[index]);
    if (!id) break;
    if (served_.count(id->hash) != 0) continue;  // it has heard
    roots.push_back(std::move(*id));
  }
  return roots;
}

/// Of this process and of others. Without the lock.
void Core::tell(std::vector<UniqueId> roots, Rank rank, const Status& cause) {
  {
    const std::lock_guard lock(mutex);
    std::erase_if(roots, [&](const UniqueId& id) {
      const auto root = findRoot(id);
      if (root) root->fail(cause);
      return root || (id.isFixed && rank.value == 0);  // rank 0 is the root of NCCL_COMM_ID
    });
  }
  sayLastWords(roots, cause);
}

std::shared_ptr<Participant> Core::join(std::span<const UniqueIdBytes> ids, int32_t ranks, Rank rank, const Note& note,
                                        MakeShared makeShared, Limits limits) {
  if (!crypto_.ok()) return std::make_shared<Participant>(rank, crypto_);
  std::unique_lock lock(mutex);
  if (hasEnded_) return std::make_shared<Participant>(rank, error(Code::InvalidUsage, "the service that connects processes has ended"));
  const auto job = findJob(ids, ranks, rank);
  if (!job) {
    const bool isOwnFault = job.error().code() == Code::SystemError || job.error().code() == Code::InvalidUsage;
    std::vector<UniqueId> roots = isOwnFault ? rootsToTell(ids, ranks, rank) : std::vector<UniqueId>();
    lock.unlock();
    if (!roots.empty()) tell(std::move(roots), rank, inOwnName(format("rank {}", rank.value), job.error()));
    return std::make_shared<Participant>(rank, job.error());
  }
  if (Status status = (*job)->enroll(rank, ranks, note, std::move(makeShared), limits); !status.ok())
    return std::make_shared<Participant>(rank, std::move(status));
  return std::make_shared<Participant>(*job, rank, limits);
}

void Core::remember(const UniqueId& id, const Status& why) {
  if (id.isFixed && why.ok()) failedFixed_.erase(id.hash);
  if (id.isFixed && !why.ok()) failedFixed_[id.hash] = {id.secret, why};
  if (id.isFixed || !served_.try_emplace(id.hash, Served{id.secret, why}).second) return;
  servedOrder_.push_back(id.hash);
  if (servedOrder_.size() <= kRemembered) return;
  served_.erase(servedOrder_.front());
  servedOrder_.pop_front();
}

Core::Unsaid Core::unsaidOf(uint64_t firstId) {
  std::erase_if(unsaid_, [](const auto& known) { return known.second.expired(); });
  std::weak_ptr<std::atomic<int>>& known = unsaid_[firstId];
  auto unsaid = known.lock();
  if (!unsaid) known = unsaid = std::make_shared<std::atomic<int>>(0);
  return unsaid;
}

void Core::linger(std::shared_ptr<Lease> door) {
  reactor.post([door = std::move(door)]() mutable {
    const auto timer = std::make_shared<asio::steady_timer>(door->reactor.loop(), kLinger);
    timer->async_wait([timer, door = std::move(door)](const asio::error_code&) {});
  });
}

void Core::lingerWhileAwaited(std::shared_ptr<Lease> door) {
  const auto until = std::chrono::steady_clock::now() + kLinger;
  reactor.post([this, door = std::move(door), until]() mutable { keepWhileAwaited(std::move(door), until); });
}

/// On the thread.
void Core::keepWhileAwaited(std::shared_ptr<Lease> door, std::chrono::steady_clock::time_point until) {
  constexpr std::chrono::milliseconds kLook(20);
  if (!door->listener->isAwaited() || std::chrono::steady_clock::now() >= until) return;
  const auto timer = std::make_shared<asio::steady_timer>(door->reactor.loop(), kLook);
  timer->async_wait([this, timer, door = std::move(door), until](const asio::error_code& why) mutable {
    if (!why) keepWhileAwaited(std::move(door), until);
  });
}

Status Core::fateOf(uint64_t id) const {
  const auto served = served_.find(id);
  if (served != served_.end()) return alreadyServed(served->second.why);
  if (const auto failed = failedFixed_.find(id); failed != failedFixed_.end())
    return error(failed->second.why.code(), "the ranks that were to meet at NCCL_COMM_ID failed to: {}", failed->second.why.text());
  return error(Code::InvalidUsage, "the unique id has served its communicator, or its ranks failed to meet");  // long ago
}

void Core::retire(const Root& root, const Status& why) {
  const uint64_t hash = root.id().hash;
  remember(root.id(), why);
  roots_.erase(hash);  // may be the last who has it
}

void Core::retire(const Job& job, const Status& why) {
  const uint64_t hash = job.firstId().hash;
  remember(job.firstId(), why);
  jobs_.erase(hash);
}

std::optional<Secret> Core::findSecret(Purpose purpose, uint64_t topic) {
  const std::lock_guard lock(mutex);
  if (purpose == Purpose::Root) {
    if (const auto root = roots_.find(topic); root != roots_.end()) return root->second->id().secret;
    if (const auto served = served_.find(topic); served != served_.end()) return served->second.secret;
    if (const auto failed = failedFixed_.find(topic); failed != failedFixed_.end()) return failed->second.secret;
  } else if (purpose == Purpose::Tree) {
    if (const auto job = jobs_.find(topic); job != jobs_.end()) return secretOf(token, job->second->firstId().secret);
  } else if (purpose == Purpose::Mesh) {
    const auto found = meshes_.find(topic);
    if (const auto mesh = found == meshes_.end() ? nullptr : found->second.lock()) return secretOf(token, mesh->key());
  }
  return std::nullopt;
}

void Core::onEstablished(Established connection) {
  auto link = std::make_shared<Link>(reactor, std::move(connection.socket), connection.keys, "a process that had connected here");
  const uint64_t topic = connection.topic;
  const std::lock_guard lock(mutex);
  if (connection.purpose == Purpose::Root) {
    const auto root = roots_.find(topic);
    return serveParty(shared_from_this(), topic, root == roots_.end() ? nullptr : root->second, link);
  }
  if (connection.purpose == Purpose::Tree) {
    if (const auto job = jobs_.find(topic); job != jobs_.end()) return job->second->awaitTable(link);
  } else if (const auto found = meshes_.find(topic); found != meshes_.end()) {
    if (const auto mesh = found->second.lock()) return mesh->welcome(link);
  }
  link->close();
}

/// One who has to come here has, and others cannot: what he came for is over. Connections of a mesh, where he was the one to come, are not.
void Core::onLack(Purpose purpose, uint64_t topic, const Status& cause) {
  const Status named = inOwnName("a process whose descriptors are used up", cause);
  const std::lock_guard lock(mutex);
  const auto root = roots_.find(topic);
  const auto job = jobs_.find(topic);
  if (purpose == Purpose::Root && root != roots_.end()) std::shared_ptr(root->second)->failForLack(named);
  if (purpose == Purpose::Tree && job != jobs_.end()) std::shared_ptr(job->second)->fail(named);
}

void Core::shutDown() {
  const Status cause = error(Code::InvalidUsage, "the service that connects processes has ended");
  {
    const std::lock_guard lock(mutex);
    hasEnded_ = true;
    for (const auto& [hash, job] : std::unordered_map(jobs_)) job->fail(cause);
    for (const auto& [hash, root] : std::unordered_map(roots_)) root->fail(cause);
    for (const auto& [number, mesh] : meshes_) {
      if (const auto open = mesh.lock()) open->close();
    }
  }
  reactor.stop();
}

}  // namespace tutti::bootstrap
