// What a process takes from the others of a communicator over hosts: envelopes, news with their circles, pipes, where ranks stand,
// meetings. The input is what three other processes say: from whom, how many bytes, the bytes; again and again.
#include "fuzz/target.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "bootstrap/mesh.h"
#include "comm/courier.h"
#include "comm/distant.h"
#include "comm/meeting.h"
#include "fuzz/silent_network.h"
#include "progress/engine.h"

namespace tutti::fuzz {
namespace {

using bootstrap::Roster;
using comm::Courier;
using transport::local::Arena;
using transport::local::Hub;

constexpr int32_t kProcesses = 4;
constexpr int32_t kHosts = 3;
constexpr uint64_t kHub = 77;

struct Said {
  int32_t to;
  std::vector<std::byte> message;
};

class NotingMesh final : public bootstrap::Mesh {
 public:
  explicit NotingMesh(int32_t self) : self_(self) {}
  Status send(int32_t process, std::span<const std::byte> message) override {
    promise(process >= 0 && process < kProcesses && process != self_, "messages go to another process");
    said.push_back({process, {message.begin(), message.end()}});
    return {};
  }
  Status tell(int32_t process, std::span<const std::byte> message) override { return send(process, message); }
  bool isReachable(int32_t process) const override {
    promise(process >= 0 && process < kProcesses && process != self_, "another process is asked about");
    return true;
  }
  void after(std::chrono::milliseconds, std::function<void()> call) override { later.push_back(std::move(call)); }
  void setHandlers(OnMessage, OnLost) override {}
  std::shared_ptr<bootstrap::Exchange> allGather(std::span<const std::byte>, std::chrono::milliseconds) override { return nullptr; }
  std::shared_ptr<bootstrap::Exchange> barrier(std::chrono::milliseconds) override { return nullptr; }
  Counters counters() const override { return {}; }

  /// What has been said, when time has passed.
  std::vector<Said> takeAll() {
    while (!later.empty())
      for (const auto& call : std::exchange(later, {})) call();
    return std::exchange(said, {});
  }

  std::vector<Said> said;
  std::vector<std::function<void()>> later;

 private:
  const int32_t self_;
};

const std::shared_ptr<progress::Engine>& engine() {
  static const auto one = [] {
    auto made = progress::Engine::create(std::make_shared<SilentNetwork>());
    promise(made.has_value(), "an engine can be made");
    return std::shared_ptr<progress::Engine>(std::move(*made));
  }();
  return one;
}

/// Process 1 shares host 1 with process 2; processes 0 and 3 are alone on theirs. A rank each.
struct Place {
  explicit Place(int32_t self) : mesh(std::make_shared<NotingMesh>(self)) {
    roster.ranks = kProcesses;
    roster.hosts.resize(kHosts);
    for (int32_t p = 0; p < kProcesses; ++p) {
      const int32_t host = p == 0 ? 0 : p == 3 ? 2 : 1;
      roster.processOf.push_back(p);
      roster.processes.push_back({.token = 1, .pid = p, .host = host, .ranks = {p}, .addresses = {}});
      roster.hosts[static_cast<size_t>(host)].processes.push_back(p);
    }
    roster.ownProcess = self;
    roster.ownHost = roster.process(self).host;
    roster.mesh = mesh;
    arena = Arena::ofThreads(self);
    courier = std::make_shared<Courier>(roster, engine());
    const auto place = Hub::format(*arena, kHub, roster.processOf);
    promise(place.has_value(), "a hub can be laid out");
    hub = *Hub::attach(arena, *place, kProcesses);
  }

  Roster roster;
  std::shared_ptr<NotingMesh> mesh;
  std::shared_ptr<Arena> arena;
  std::shared_ptr<Courier> courier;
  std::shared_ptr<Hub> hub;
};

std::string line(int32_t from, std::span<const std::byte> message) {
  std::string text = {static_cast<char>(from), static_cast<char>(message.size()), static_cast<char>(message.size() >> 8)};
  return text.append(reinterpret_cast<const char*>(message.data()), message.size());
}

}  // namespace

void run(std::string_view input) {
  std::span<const std::byte> bytes = std::as_bytes(std::span(input));
  if (bytes.empty()) return;
  Place here(1);
  const bool comesLate = (bytes[0] & std::byte{1}) != std::byte{0};
  const bool leavesEarly = (bytes[0] & std::byte{2}) != std::byte{0};
  if (!comesLate) here.courier->introduce(here.hub);
  if (leavesEarly) here.courier->dismiss(kHub);
  bytes = bytes.subspan(1);
  size_t heard = 0;
  while (bytes.size() >= 3) {
    const int32_t from = std::to_integer<int32_t>(bytes[0]) % kProcesses;
    const size_t size = std::to_integer<size_t>(bytes[1]) | std::to_integer<size_t>(bytes[2]) << 8;
    const auto message = bytes.subspan(3, std::min(size, bytes.size() - 3));
    here.courier->hear(from == 1 ? 0 : from, message);
    heard += 3 + message.size();
    bytes = bytes.subspan(3 + message.size());
  }
  if (comesLate) here.courier->introduce(here.hub);
  promise(!here.hub->departed(Rank(1)), "nobody else says that a rank of this process has departed");
  promise(here.hub->board(Rank(1)).begun() == 0, "nobody else says what it calls");
  size_t said = 0;
  for (const Said& one : here.mesh->takeAll()) said += one.message.size();
  promise(said <= 16 * 1024 + 64 * heard, "what is passed on and answered is in proportion to what came");
  here.hub->depart(Rank(1), 0);
}

std::vector<std::string> seeds() {
  Place there(0);
  there.courier->introduce(there.hub);
  std::vector<std::string> all;
  std::string together;
  const auto note = [&] {
    for (const Said& one : there.mesh->takeAll()) {
      if (one.to != 1) continue;
      const std::string text = line(0, one.message);
      for (const char how : {'\0', '\1', '\2'}) all.push_back(how + text);
      together += text;
    }
  };
  for (uint64_t s = 0; s < 3; ++s) {
    Call call;
    call.count = 10 + s;
    call.sequence = s;
    there.hub->board(Rank(0)).post(call);
  }
  transport::local::RankWait wait;
  wait.chains.emplace_back().call = *there.hub->board(Rank(0)).find(2);
  wait.chains[0].lanes.emplace_back().awaits = {Rank(1)};
  wait.sent = {0, 3, 0, 0};
  there.hub->remote()->stands(Rank(0), &wait, 1);
  note();
  there.hub->remote()->stands(Rank(0), nullptr, 1);
  note();
  (void)there.hub->pipe({ChannelId(0), 0, Rank(1), Rank(0)}, 2, 4096);
  note();
  for (const std::vector<int32_t>& members : {std::vector<int32_t>{}, std::vector<int32_t>{0, 1}}) {
    const auto meeting = comm::Meeting::arrive(there.hub, {false, members, 1}, members.empty() ? kProcesses : 2, Rank(0), {});
    note();
    if (meeting) (*meeting)->end(error(Code::RemoteError, "too late"));
    note();
  }
  const comm::Circle some = comm::Circle::of(there.roster, std::vector<int32_t>{0, 1, 3});
  there.courier->sendToHosts(kHub, some, comm::News::Departed, std::vector<std::byte>(16));
  note();
  there.hub->blame(Rank(3));
  there.hub->failAll(error(Code::RemoteError, "rank 3 is gone"));
  note();
  there.hub->depart(Rank(0), 5);
  note();
  all.push_back('\0' + together);
  return all;
}

}  // namespace tutti::fuzz
