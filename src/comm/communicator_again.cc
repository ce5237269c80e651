// Short messages like earlier ones: passed without a work, in the order in which a group has them.
#include <algorithm>
#include <vector>

#include "comm/communicator.h"
#include "comm/group.h"

namespace tutti::comm {
namespace {

/// First what is sent, as others wait for it. `pass(message)`: whether it was passed.
template <class Message, class Receives, class Pass>
void passInOrder(std::vector<Message>& messages, Receives receives, Pass pass) {
  for (const bool side : {false, true})
    for (Message& message : messages) {
      if (receives(message) != side) continue;
      message.isPassed = pass(message);
      if (!message.isPassed) break;  // those behind it may be of the same pair
    }
  std::erase_if(messages, [](const Message& message) { return message.isPassed; });
}

}  // namespace

Result<PendingCall> Communicator::spellOut(const CallRequest& request) {
  const PendingCall* const like = find(request);
  if (like == nullptr) return prepare(request);
  PendingCall call = *like;
  call.planned.in = request.in;
  call.planned.out = request.out;
  return call;
}

void Communicator::passEagerly(std::vector<PendingCall>& calls) {
  const auto isEager = [](const PendingCall& call) { return static_cast<bool>(call.eager); };
  if (!std::all_of(calls.begin(), calls.end(), isEager) || !mayPass()) return;
  passInOrder(calls, [](const PendingCall& call) { return call.receives; },
              [this](const PendingCall& call) { return exec::host::passEagerly(*turn_, call.eager, call.planned); });
}

void Communicator::passEagerly(std::vector<RepeatedMessage>& messages) {
  if (!mayPass()) return;
  passInOrder(messages, [](const RepeatedMessage& message) { return message.request.receives; },
              [this](const RepeatedMessage& message) {
                PendingCall* const like = find(message.request);
                return like != nullptr && pass(*like, message.request);
              });
}

}  // namespace tutti::comm
