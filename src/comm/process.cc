#include "comm/process.h"

#include <pthread.h>
#include <unistd.h>

#include <utility>

#include "config/effects.h"
#include "config/params.h"
#include "driver/cuda/real.h"
#include "observe/log.h"

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
    : devices([]() -> Result<std::unique_ptr<driver::cuda::Api>> { return driver::cuda::openDriver(); }, exec::cuda::makeExecutor) {}

void Process::tellEffects() {
  std::call_once(effects_, [] {
    for (const std::string& line : config::withoutEffect()) observe::warn("{}", line);
  });
}

namespace {

Process* known = nullptr;  // for the handler: it runs in the only thread of a process that has just begun
Fork origin;

void noteFork() {
  if (known == nullptr) return;
  known->handles.forgetVisits();
  if (known->handles.live() == 0) return;
  origin.communicators = known->handles.live();
  origin.parent = static_cast<int32_t>(getppid());
  loneVisitor = nullptr;
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

constinit thread_local Visitor* loneVisitor = nullptr;

ThreadState::~ThreadState() {
  loneVisitor = nullptr;
  if (visitor != nullptr) process().handles.dismiss(visitor);
}

void noteLoneCall() {
  if (loneVisitor != nullptr) return;
  ThreadState& thread = thisThread();
  if (thread.visitor == nullptr) thread.visitor = process().handles.admit();
  loneVisitor = thread.visitor;
}

ThreadState& thisThread() {
  // One pointer of thread-local storage, whatever the state grows to: the library is opened into other people's processes.
  thread_local std::unique_ptr<ThreadState> state;
  if (!state) [[unlikely]]
    state = std::make_unique<ThreadState>();
  return *state;
}

}  // namespace tutti::comm
