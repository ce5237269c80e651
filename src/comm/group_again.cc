// Messages of groups that come again and again: what was asked for is kept, and made into calls only where that is not enough.
#include <algorithm>
#include <utility>

#include "comm/group.h"
#include "comm/process.h"
#include "observe/log.h"

namespace tutti::comm {

bool Group::addAgain(ncclComm* handle, Communicator& comm, const CallRequest& request) {
  if (!comm.knows(request) || !content_.blocking.value_or(true)) return false;
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
    if (status.ok()) status = launch(calls, true);
    keepRoom(content_.calls, calls);
  }
  keepRoom(content_.repeated, messages);
  return status;
}

Status Group::spellOut(std::vector<RepeatedMessage>& messages, std::vector<PendingCall>& calls) {
  if (messages.empty()) return {};
  const auto spell = [&]() -> Result<size_t> {
    calls.reserve(calls.size() + messages.size());
    for (const RepeatedMessage& message : messages) {
      PendingCall call;
      if (auto use = process().handles.useAgain(message.handle, message.comm)) {  // if not, the launch says so
        observe::setCurrentDevice((*use)->device());
        auto made = (*use)->spellOut(message.request);
        if (!made) return tl::unexpected(std::move(made).error());
        call = std::move(*made);
      }
      call.comm = message.comm;
      call.handle = message.handle;
      calls.push_back(std::move(call));
    }
    return calls.size();
  };
  auto spelled = orOutOfMemory(spell);
  if (!spelled) forgo(messages, spelled.error());
  messages.clear();
  return spelled ? Status() : std::move(spelled).error();
}

}  // namespace tutti::comm
