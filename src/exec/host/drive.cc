#include "exec/host/drive.h"

#include "exec/host/wait.h"

namespace tutti::exec::host {

Status drive(std::span<const std::unique_ptr<Work>> works, int32_t spins) {
  constexpr uint32_t kTriesBetweenInspections = 64;
  Waiter waiter(spins);
  uint32_t idle = 0;
  for (;;) {
    bool pending = false;
    bool moved = false;
    for (const auto& work : works) {
      if (work->advance() == Poll::Pending) pending = true;
      moved = moved || work->moved();
    }
    if (!pending) break;
    if (moved) {
      waiter.reset();
    } else {
      waiter.pause();
      if (++idle % kTriesBetweenInspections == 0)
        for (const auto& work : works) work->inspect();
    }
  }
  for (const auto& work : works)
    if (!work->status().ok()) return work->status();
  return {};
}

}  // namespace tutti::exec::host
