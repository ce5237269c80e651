// The creations of a group: all are started before any is waited for, so that one thread can bring several ranks.
#include <atomic>
#include <utility>

#include "comm/group.h"
#include "comm/process.h"
#include "exec/host/wait.h"

namespace tutti::comm {
namespace {

/// release: whoever reads the handle from another thread also sees what it leads to.
void publish(ncclComm** result, ncclComm* handle) { std::atomic_ref<ncclComm*>(*result).store(handle, std::memory_order_release); }

/// Undoes a communicator that its caller will never hear of.
void discard(ncclComm* handle, const Status& cause) {
  HandleTable::Use use = process().handles.use(handle);
  if (!use) return;
  const std::unique_ptr<Communicator> comm(process().handles.retire(use));
  if (comm == nullptr) return;  // an abort was faster
  if (comm->isOpen()) comm->stop(cause);
  process().handles.waitUnused(use);
  comm->depart();
}

Result<ncclComm*> makeMember(const JoinRequest& request) {
  const uint64_t hash = bootstrap::Service::hashOf(request.ids.front());
  auto comm = std::make_unique<Communicator>(request.rank, request.ranks, request.device, hash, request.config, nullptr, request.onGpu);
  auto handle = process().handles.make(comm.get());
  if (handle) (void)comm.release();  // owned through its handle from here on
  return handle;
}

}  // namespace

Group::~Group() { (void)undo(content_.creations, error(Code::InvalidUsage, "the thread ended within its group")); }

Status Group::add(JoinRequest request) {
  const bool blocking = request.config.blocking;
  TUTTI_TRY(admit(blocking));
  auto handle = makeMember(request);
  if (!handle) return std::move(handle).error();
  Creation creation;
  creation.result = request.result;
  creation.subject = *handle;
  creation.isNew = true;
  creation.isKnown = isOpen() && !blocking;  // its state may be asked for inside the group
  if (creation.isKnown) publish(request.result, *handle);
  creation.makeSetup = [handle = *handle, request = std::move(request)](Communicator& comm) { return makeJoin(comm, handle, request); };
  return add(std::move(creation), blocking);
}

Status Group::add(ChildRequest request) {
  bool blocking = true;
  {
    const auto use = process().handles.use(request.parent);
    if (!use) return error(Code::InvalidArgument, "the parent is no live communicator");
    blocking = use->isBlocking();
  }
  TUTTI_TRY(admit(blocking));
  Creation creation;
  creation.result = request.result;
  creation.subject = request.parent;
  creation.makeSetup = [request = std::move(request)](Communicator& comm) { return makeChild(comm, request); };
  return add(std::move(creation), blocking);
}

Status Group::add(Creation creation, bool blocking) {
  if (isOpen()) {
    content_.creations.push_back(std::move(creation));
    return {};
  }
  Content alone;
  alone.blocking = blocking;
  alone.creations.push_back(std::move(creation));
  return run(alone);
}

Status Group::create(std::vector<Creation> creations, bool blocking) {
  Status status = startAll(creations);
  if (status.ok() && blocking) status = waitForAll(creations);
  return status.ok() ? Status() : undo(creations, std::move(status));
}

Status Group::startAll(std::vector<Creation>& creations) {
  for (Creation& creation : creations) {
    const auto use = process().handles.use(creation.subject);
    if (!use) return error(Code::InvalidUsage, "a communicator was destroyed or aborted while it waited for ncclGroupEnd");
    creation.setup = creation.makeSetup(*use);
    use->follow(creation.setup);
    if (creation.isNew && !creation.isKnown) publish(creation.result, creation.subject);
    TUTTI_TRY(creation.setup->start());
  }
  return {};
}

/// The caller drives them, whatever their order.
Status Group::waitForAll(std::vector<Creation>& creations) {
  std::vector<HandleTable::Use> uses;
  for (const Creation& creation : creations) uses.push_back(process().handles.use(creation.subject));
  auto waiter = exec::host::Waiter::forSetUp();
  Status failed;
  for (bool pending = true; pending && failed.ok(); waiter.pause()) {
    pending = false;
    for (Creation& creation : creations) {
      const Poll poll = creation.setup->advance();
      pending = pending || poll == Poll::Pending;
      if (poll == Poll::Failed && failed.ok()) failed = creation.setup->status();
    }
    if (!pending) break;
  }
  for (const auto& use : uses)
    if (use) (void)use->state();  // lets go of what is over
  return failed;
}

/// Nothing of a group that failed is left, but for communicators that the caller knows: those have an error.
Status Group::undo(std::vector<Creation>& creations, Status cause) {
  const Status told = error(cause.code(), "another call of the same group failed: {}", cause.text());
  for (Creation& creation : creations) {
    const bool isMade = creation.setup != nullptr && creation.setup->advance() == Poll::Ready;
    if (creation.setup != nullptr) creation.setup->giveUp(told);
    if (creation.isKnown) {
      const auto use = process().handles.use(creation.subject);
      if (use) (void)use->poison(cause);
    } else if (creation.isNew) {
      discard(creation.subject, told);
      if (creation.setup != nullptr) publish(creation.result, nullptr);
    } else if (creation.setup != nullptr) {
      if (isMade) discard(*creation.result, told);
      publish(creation.result, nullptr);
      const auto use = process().handles.use(creation.subject);
      if (use && !isMade) (void)use->poison(cause);  // which the caller is told
      if (use) (void)use->state();
    }
  }
  return cause;
}

}  // namespace tutti::comm
