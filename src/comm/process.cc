#include "comm/process.h"

#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "comm/communicator.h"
#include "config/effects.h"
#include "config/params.h"
#include "core/process_barrier.h"
#include "driver/cuda/real.h"
#include "observe/log.h"

// Names this library, which stays until its threads' states have ended: the C++ ABI's name.
// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl*,readability-identifier-naming)
extern "C" __attribute__((visibility("hidden"))) char __dso_handle;

namespace tutti::comm {

Result<void*> StreamTable::create() {
  auto stream = std::make_shared<exec::host::Stream>();
  if (Status status = stream->start(config::get<config::Param::SetThreadName>() ? "tutti stream" : nullptr); !status.ok())
    return tl::unexpected(std::move(status));
  void* handle = stream.get();
  const std::lock_guard lock(mutex_);
  live_.emplace(handle, std::move(stream));
  return handle;
}

std::shared_ptr<exec::host::Stream> StreamTable::find(void* handle) const {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(handle);
  return it == live_.end() ? nullptr : it->second;
}

std::shared_ptr<exec::host::Stream> StreamTable::remove(void* handle) {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(handle);
  if (it == live_.end()) return nullptr;
  std::shared_ptr<exec::host::Stream> stream = std::move(it->second);
  live_.erase(it);
  return stream;
}

Process::Process()
    : devices([]() -> Result<std::unique_ptr<driver::cuda::Api>> { return driver::cuda::openDriver(); }, exec::cuda::makeExecutor) {
  askForProcessBarriers();
}

void Process::tellEffects() {
  std::call_once(effects_, [] {
    for (const std::string& line : config::misread()) observe::warn("{}", line);
    for (const std::string& line : config::withoutEffect()) observe::warn("{}", line);
  });
}

Departures::Entry::Entry(Departures& of, ncclComm* handle, const Communicator& comm) : of_(of) {
  const std::lock_guard lock(of_.mutex_);
  number_ = ++of_.made_;
  of_.all_[number_] = {handle, comm.shared(), comm.rank()};
}

Departures::Entry::~Entry() {
  const std::lock_guard lock(of_.mutex_);
  of_.all_.erase(number_);
}

void Departures::abort(ncclComm* handle) {
  Departing departing;
  {
    const std::lock_guard lock(mutex_);
    const auto isIt = [handle](const auto& entry) { return entry.second.handle == handle; };
    if (const auto found = std::find_if(all_.begin(), all_.end(), isIt); found != all_.end()) departing = found->second;
  }
  if (departing.shared == nullptr) return;
  departing.shared->failAll(error(Code::RemoteError, "rank {} aborted its communicator", departing.rank.value));
}

namespace {

Process* known = nullptr;  // for the handler: it runs in the only thread of a process that has just begun
Fork origin;

void noteFork() {
  if (known == nullptr) return;
  known->handles.forgetVisits();
  if (known->handles.live() == 0) return known->networks.forgetEngines();  // one may have been about to end
  origin.communicators = known->handles.live();
  origin.parent = static_cast<int32_t>(getppid());
  threadWords.lone = threadWords.group = nullptr;
}

Process* makeProcess() {
  known = new Process;
  (void)pthread_atfork(nullptr, nullptr, noteFork);
  return known;
}

}  // namespace

Process& process() {
  static Process* const state = makeProcess();  // never destroyed, see the header
  return *state;
}

const Fork& forked() { return origin; }

Status refuseForked() {
  return error(Code::InvalidUsage,
               "this process was forked from process {} while that had {} communicators: threads, connections and CUDA do not survive a "
               "fork. Fork before communicators are made, or start processes anew (multiprocessing: 'spawn' or 'forkserver')",
               origin.parent, origin.communicators);
}

/// Few words, whatever the state grows to: the library is opened into other people's processes.
constinit thread_local ThreadWords threadWords;

ThreadState::~ThreadState() {
  threadWords.lone = threadWords.group = nullptr;
  if (visitor != nullptr) process().handles.dismiss(visitor);
}

void noteLoneCall() {
  if (threadWords.lone != nullptr) return;
  ThreadState& thread = thisThread();
  if (thread.visitor == nullptr) thread.visitor = process().handles.admit();
  threadWords.lone = thread.visitor;
}

namespace {

void endState(void* state) {
  if (threadWords.state == state) threadWords.state = nullptr;
  delete static_cast<ThreadState*>(state);
}

}  // namespace

ThreadState& makeThreadState() {
  auto state = std::make_unique<ThreadState>();
  // A thread that is ending calls what is registered meanwhile as well.
  if (abi::__cxa_thread_atexit(endState, state.get(), &__dso_handle) != 0) throw std::bad_alloc();
  threadWords.state = state.release();
  return *threadWords.state;
}

}  // namespace tutti::comm
