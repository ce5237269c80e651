// Messages of groups that come again and again: what was asked for is kept, and made into calls only where that is not enough.
#include <algorithm>
#include <utility>

#include "comm/group.h"
#include "comm/process.h"
#include "observe/log.h"

namespace tutti::comm {

bool Group::addAgain(ncclComm* handle, Communicator& comm, const CallRequest& request) {
  if (comm.messageLike(request) == nullptr || !content_.blocking.value_or(true)) return false;
  content_.repeated.push_back({&comm, handle, request});
  content_.blocking = true;
  return true;
}

Status Group::endRepeated() {
  std::vector<RepeatedMessage> messages;
  messages.swap(content_.repeated);
  content_.blocking.reset();
  const RepeatedMessage first = messages.front();
  const auto isOther = [&first](const RepeatedMessage& m) { return m.handle != first.handle || m.comm != first.comm; };
  Visitor* const visitor = threadWords.lone;
  if (visitor != nullptr && std::none_of(messages.begin(), messages.end(), isOther)) {
    const HandleTable::Visit visit(*visitor, first.handle);
    if (visit && &*visit == first.comm) visit->passEagerly(messages);
  }
  Status status;
  if (!messages.empty()) [[unlikely]] {
    std::vector<PendingCall> calls;
    calls.swap(content_.calls);  // for its room
    status = spellOut(messages, calls);
    if (status.ok())
      status = launch(calls, true);
    else
      forgo(calls, status);
    keepRoom(content_.calls, calls);
  }
  keepRoom(content_.repeated, messages);
  return status;
}

Status Group::spellOut(std::vector<RepeatedMessage>& messages, std::vector<PendingCall>& calls) {
  const auto makeRoom = [&]() -> Result<size_t> {
    calls.reserve(calls.size() + messages.size());
    return calls.capacity();
  };
  if (const auto room = orOutOfMemory(makeRoom); !room) {
    forgo(messages, room.error());
    messages.clear();
    return room.error();
  }
  Status first;
  for (const RepeatedMessage& message : messages) {
    PendingCall call;
    if (auto use = process().handles.useAgain(message.handle, message.comm)) {  // if not, the launch says so
      observe::setCurrentDevice((*use)->device());
      auto made = orOutOfMemory([&] { return (*use)->prepareAgain(message.request); });
      if (made) call = std::move(*made);
      if (!made && first.ok()) first = std::move(made).error();
    }
    call.comm = message.comm;
    call.handle = message.handle;
    calls.push_back(std::move(call));
  }
  messages.clear();
  return first;
}

Status Group::spellOut() {
  if (content_.repeated.empty()) return {};
  Status status = spellOut(content_.repeated, content_.calls);
  if (!status.ok() && content_.error.ok()) {
    content_.error = status;
    content_.isForgone = isLack(status.code());
  }
  return status;
}

}  // namespace tutti::comm
