// Messages of a rank to itself, on host devices and on GPUs alike.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "core/status.h"

namespace tutti::comm {

/// Sends and receives of `calls` that pass `isToSelf`, in pairs, in the order in which they were issued: first the send. InvalidUsage when
/// one has no partner, or one of another size.
template <class Call, class IsToSelf>
Result<std::vector<std::pair<Call*, Call*>>> pairOwnMessages(Rank rank, std::span<Call> calls, IsToSelf&& isToSelf) {
  std::vector<Call*> sends;
  std::vector<Call*> receives;
  for (Call& call : calls)
    if (isToSelf(call)) (call.call.receives ? receives : sends).push_back(&call);
  if (sends.size() != receives.size())
    return fail(Code::InvalidUsage,
                "rank {} sends {} messages to itself and receives {}: each send to the own rank needs a receive in the same group",
                rank.value, sends.size(), receives.size());
  std::vector<std::pair<Call*, Call*>> pairs;
  for (size_t i = 0; i < sends.size(); ++i) {
    const uint64_t sent = sends[i]->call.count;
    const uint64_t received = receives[i]->call.count;
    if (sent != received) return fail(Code::InvalidUsage, "rank {} sends itself {} bytes but receives {}", rank.value, sent, received);
    pairs.emplace_back(sends[i], receives[i]);
  }
  return pairs;
}

}  // namespace tutti::comm
