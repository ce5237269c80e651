// What the tests of this folder share: worlds in which one process plays several hosts, and ways to wait.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/service.h"

namespace tutti::bootstrap::play {

using std::chrono::milliseconds;
using Joined = std::shared_ptr<Participant>;
using Outcome = Result<std::shared_ptr<const Roster>>;

inline Result<std::vector<Interface>> loopbackOnly() { return std::vector<Interface>{{"lo", *parseAddress("127.0.0.1"), true}}; }

/// A machine with one interface, lo, which is called `host`.
inline World worldOf(const std::string& host, const std::function<void(Settings&)>& change = nullptr) {
  World world;
  world.settings = [change] {
    Settings settings;
    settings.retries = 20;
    settings.retrySleepMs = 20;
    if (change) change(settings);
    return settings;
  };
  world.host = [host] { return HostFacts{host, "boot", 1}; };
  world.interfaces = loopbackOnly;
  return world;
}

inline Note noteOf(int32_t rank) {
  Note note{};
  std::memcpy(note.data(), &rank, sizeof rank);
  note[127] = static_cast<std::byte>(rank * 7);
  return note;
}

/// A memfd that holds `mark`.
inline MakeShared sharedMarked(int mark) {
  return [mark](const Roster&) -> Result<UniqueFd> {
    UniqueFd fd(memfd_create("test", MFD_CLOEXEC));
    if (!fd || write(fd.get(), &mark, sizeof mark) != sizeof mark) return fail(Code::SystemError, "no memfd");
    return fd;
  };
}

inline int markOf(const UniqueFd& fd) {
  int mark = -1;
  return pread(fd.get(), &mark, sizeof mark, 0) == sizeof mark ? mark : -1;
}

inline Joined join(Service& service, const UniqueIdBytes& id, int32_t ranks, int32_t rank, Limits limits = {}) {
  return service.join(std::span(&id, 1), ranks, Rank(rank), noteOf(rank), sharedMarked(rank), limits);
}

/// Asks until there is an answer, or `limit` has passed.
inline Outcome wait(const Participant& participant, milliseconds limit = milliseconds(20'000)) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < until) {
    if (auto outcome = participant.poll()) return *outcome;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return fail(Code::InProgress, "the test waited in vain: {}", participant.describeMissing());
}

inline bool becomes(const std::function<bool()>& condition, milliseconds limit = milliseconds(10'000)) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

}  // namespace tutti::bootstrap::play
