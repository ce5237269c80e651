#include "progress/engine.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tutti::progress {
namespace {

/// Up to so many receivers are asked directly in every pass: cheaper, and sooner, than asking epoll which of them has something.
constexpr int32_t kDirectReceivers = 2;
constexpr uint32_t kPassesPerHarvest = 64;
/// How often connections being set up are looked at when no event came: for their time limits.
constexpr std::chrono::milliseconds kLookInterval{20};
/// The nap between two looks at a network without descriptors.
constexpr Nanoseconds kNap{50'000};

}  // namespace

Engine::Engine(std::shared_ptr<net::Network> network) : network_(std::move(network)), blind_(network_->acceptDescriptors().empty()) {}

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<net::Network> network, bool namesThread) {
  std::unique_ptr<Engine> engine(new Engine(std::move(network)));
  Status status = engine->poller_.open();
  if (status.ok()) status = engine->sleeperBell_.open();
  if (status.ok()) status = engine->threadBell_.open();
  for (const int descriptor : engine->network_->acceptDescriptors()) {
    if (status.ok()) status = engine->poller_.add(descriptor, &engine->acceptWatcher_);
  }
  if (status.ok()) status = engine->startThread(namesThread);
  if (!status.ok()) return tl::unexpected(std::move(status).at("start the progress engine"));
  return engine;
}

Engine::~Engine() {
  stop_.store(true, std::memory_order_seq_cst);
  threadBell_.ring();
  if (thread_.joinable()) thread_.join();
}

void Engine::add(Job* job) {
  {
    const std::lock_guard lock(inboxMutex_);
    inbox_.push_back(job);
    hasInbox_.store(true, std::memory_order_release);  // pairs with adopt()
  }
  kick();
}

void Engine::adopt() {
  if (!hasInbox_.load(std::memory_order_acquire)) return;  // pairs with add()
  const std::lock_guard lock(inboxMutex_);
  // Senders first: a pass sends what there is before it looks for what has come.
  for (Job* job : inbox_) jobs_.insert(job->receives() ? jobs_.end() : jobs_.begin(), job);
  inbox_.clear();
  hasInbox_.store(false, std::memory_order_relaxed);  // under the inbox's lock, as the store in add()
}

void Engine::forget(const std::vector<std::unique_ptr<Job>>& jobs) {
  adopt();
  std::vector<const Job*> gone(jobs.size());
  std::transform(jobs.begin(), jobs.end(), gone.begin(), [](const std::unique_ptr<Job>& job) { return job.get(); });
  std::sort(gone.begin(), gone.end());
  std::erase_if(jobs_, [&](const Job* job) { return std::binary_search(gone.begin(), gone.end(), job); });
}

bool Engine::progress() {
  if (busy_.load(std::memory_order_relaxed) || claims_.load(std::memory_order_relaxed) > 0) return false;
  if (!mutex_.try_lock()) return false;
  const std::lock_guard lock(mutex_, std::adopt_lock);
  return pass();
}

bool Engine::timeToLook() {
  bool look = std::exchange(acceptPoked_, false);
  if (survey_.settingUp > 0) {
    if (blind_) return true;
    const auto now = std::chrono::steady_clock::now();
    if (now >= nextLook_) {
      nextLook_ = now + kLookInterval;
      look = true;
    }
  }
  return look;
}

/// Under the lock.
bool Engine::pass() {
  busy_.store(true, std::memory_order_relaxed);
  adopt();
  const bool direct = survey_.receivers <= kDirectReceivers;
  if (survey_.waiting || survey_.settingUp > 0 || !direct || ++sinceHarvest_ >= kPassesPerHarvest ||
      eventsWait_.load(std::memory_order_relaxed)) {
    sinceHarvest_ = 0;
    eventsWait_.store(false, std::memory_order_relaxed);
    poller_.harvest();
  }
  const bool look = timeToLook();
  Survey now;
  bool whole = true;
  for (Job* job : jobs_) {
    if (claims_.load(std::memory_order_relaxed) > 0) {
      whole = false;
      break;
    }
    if (job->final()) continue;
    if (job->state() == JobState::SettingUp ? look : (direct && job->receives())) job->poke();
    const Advance did = job->advance(poller_);
    now.moved = now.moved || did.moved;
    now.waiting = now.waiting || did.waits;
    now.blindWork = now.blindWork || (job->blind() && did.waits);
    if (job->state() == JobState::SettingUp) ++now.settingUp;
    if (job->state() == JobState::Running && job->receives()) ++now.receivers;
  }
  if (whole) {
    survey_ = now;
    settingUp_.store(now.settingUp, std::memory_order_relaxed);
    blindWork_.store(now.blindWork, std::memory_order_relaxed);
  } else {
    acceptPoked_ = acceptPoked_ || look;
    survey_.waiting = true;
  }
  passes_.store(passes_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  busy_.store(false, std::memory_order_relaxed);
  if (now.moved) noteMove();
  return now.moved;
}

void Engine::noteMove() {
  // seq_cst: pairs with sleeping_ in progressOrWait(): either the sleeper sees the move or it is seen here.
  moves_.fetch_add(1, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst) > 0) wakeSleepers();
}

void Engine::wakeSleepers() {
  const std::lock_guard lock(sleepMutex_);
  if (leader_) sleeperBell_.ring();
  sleepers_.notify_all();
}

Nanoseconds Engine::longestSleep(Nanoseconds wanted) const {
  Nanoseconds most = wanted;
  const auto atMost = [&](Nanoseconds limit) { most = most.count() < 0 ? limit : std::min(most, limit); };
  if (settingUp_.load(std::memory_order_relaxed) > 0) atMost(kLookInterval);
  if (blind_) atMost(kNap);
  return most;
}

bool Engine::progressOrWait(Nanoseconds timeout) {
  const uint64_t seen = moves_.load(std::memory_order_acquire);  // pairs with noteMove()
  if (progress()) return true;
  sleeping_.fetch_add(1, std::memory_order_seq_cst);  // pairs with noteMove()
  std::unique_lock lock(sleepMutex_);
  if (moves_.load(std::memory_order_seq_cst) == seen) {
    const Nanoseconds most = longestSleep(timeout);
    if (leader_) {
      sleepers_.wait_for(lock, most.count() < 0 ? Nanoseconds(std::chrono::hours(1)) : most);
    } else {
      leader_ = true;
      lock.unlock();
      const std::array<int, 2> descriptors{sleeperBell_.descriptor(), poller_.descriptor()};
      if ((waitFor(descriptors, most) & 2) != 0) eventsWait_.store(true, std::memory_order_relaxed);
      lock.lock();
      sleeperBell_.silence();
      leader_ = false;
      sleepers_.notify_all();  // one of them sleeps on the descriptors next
    }
  }
  lock.unlock();
  sleeping_.fetch_sub(1, std::memory_order_relaxed);  // only noteMove() reads it, and ringing in vain does no harm
  return progress() || moves_.load(std::memory_order_acquire) != seen;
}

}  // namespace tutti::progress
