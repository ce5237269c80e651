// What a process takes for the all-gathers of a mesh: of six processes on three hosts one is here, and the input is what the others say to
// it, when it makes calls of its own, and when deadlines pass, others leave or are lost.
#include <algorithm>
#include <deque>
#include <memory>

#include "bootstrap/exchanges.h"
#include "bootstrap/wire.h"
#include "fuzz/some_hosts.h"
#include "fuzz/target.h"

namespace tutti::fuzz {
namespace {

using bootstrap::Exchanges;

const std::vector<int32_t> kHostOf = {0, 1, 0, 0, 2, 0};
constexpr int32_t kProcesses = 6;

/// What happens: each with the number of a process or a call, and bytes.
enum class Event : uint8_t { Message, Start, Deadline, Leave, Lose };
constexpr unsigned kEvents = 5;

std::string line(Event event, uint64_t number, std::span<const std::byte> bytes) {
  std::string text = {static_cast<char>(event), static_cast<char>(number), static_cast<char>(bytes.size()),
                      static_cast<char>(bytes.size() >> 8)};
  return text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

/// One process, with all that it says and how its calls end.
class Process {
 public:
  struct Said {
    int32_t to;
    std::vector<std::byte> bytes;
  };

  explicit Process(int32_t self) : membership_(someHosts(kHostOf, self)) {}
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int32_t self() const { return membership_.ownProcess; }
  void start(std::span<const std::byte> own) {
    calls_.push_back(std::make_shared<Exchanges::State>(own, std::chrono::milliseconds(1000)));
    exchanges.start(calls_.back());
  }
  size_t begun() const { return calls_.size(); }
  bool isComplete(size_t call) const {
    const auto outcome = calls_[call]->poll();
    return outcome && *outcome;
  }
  void checkCalls(bool areAllOver) const {
    for (const auto& call : calls_) checkCall(*call, areAllOver);
  }

  std::vector<Said> said;

 private:
  void checkCall(const Exchanges::State& call, bool isOver) const {
    const auto outcome = call.poll();
    const std::vector<int32_t> missing = call.missing();
    promise(outcome || !isOver, "after a loss nothing is under way");
    promise(outcome.has_value() == missing.empty(), "what is under way misses somebody");
    promise(std::ranges::is_sorted(missing) && std::ranges::all_of(missing, isProcess), "who is missing takes part");
    if (!outcome) return;
    if (!*outcome) return promise(!outcome->error().text().empty(), "an error has words");
    const bootstrap::Gathered& parts = ***outcome;
    promise(parts.size() == kProcesses, "there is a part of everybody");
    promise(std::ranges::equal(parts[static_cast<size_t>(membership_.ownProcess)], call.own), "nobody else says what this process gave");
  }
  static bool isProcess(int32_t process) { return process >= 0 && process < kProcesses; }

  const bootstrap::Membership membership_;
  std::vector<std::shared_ptr<Exchanges::State>> calls_;

 public:
  Exchanges exchanges{membership_,
                      {[this](int32_t to, std::vector<std::byte> bytes) {
                         promise(isProcess(to) && to != membership_.ownProcess, "messages go to another process");
                         said.push_back({to, std::move(bytes)});
                       },
                       [this](int32_t except, const std::vector<std::byte>& bytes) {
                         promise(except >= -1 && except < kProcesses, "news came from a process, or from here");
                         said.push_back({-1, bytes});
                       },
                       [](std::chrono::milliseconds, uint64_t) { return bootstrap::Alarm(); }}};
};

void happen(Process& here, Event event, uint64_t number, std::span<const std::byte> bytes) {
  const auto process = static_cast<int32_t>(number % kProcesses);
  switch (event) {
    case Event::Message: (void)here.exchanges.take(process == here.self() ? (process + 1) % kProcesses : process, bytes); return;
    case Event::Start: return here.start(bytes);
    case Event::Deadline: return number < here.begun() ? here.exchanges.remind(number) : void();
    case Event::Leave: return here.exchanges.leave(process, error(Code::RemoteError, "it has left"));
    case Event::Lose: return here.exchanges.lose(error(Code::RemoteError, "it is lost"));
  }
}

}  // namespace

void run(std::string_view input) {
  std::span<const std::byte> bytes = std::as_bytes(std::span(input));
  if (bytes.empty()) return;
  Process here(std::to_integer<int32_t>(bytes[0]) % kProcesses);
  bytes = bytes.subspan(1);
  size_t heard = 0;
  size_t events = 0;
  for (; bytes.size() >= 4; ++events) {
    const auto event = static_cast<Event>(std::to_integer<unsigned>(bytes[0]) % kEvents);
    const auto number = std::to_integer<uint64_t>(bytes[1]);
    const size_t size = std::to_integer<size_t>(bytes[2]) | std::to_integer<size_t>(bytes[3]) << 8;
    const auto body = bytes.subspan(4, std::min(size, bytes.size() - 4));
    happen(here, event, number, body);
    bytes = bytes.subspan(4 + body.size());
    heard += body.size();
  }
  here.checkCalls(false);
  size_t said = 0;
  for (const Process::Said& one : here.said) said += one.bytes.size();
  promise(said <= 8 * heard + 1024 * events, "what is said is in proportion to what came");
  here.exchanges.lose(error(Code::RemoteError, "the end"));
  here.checkCalls(true);
}

/// Three all-gathers that go well: what each process hears, when it begins before the others and when it begins last. Then what others say
/// to one another when there is trouble.
std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const bool beginsLate : {false, true}) {
    for (int32_t self = 0; self < kProcesses; ++self) {
      std::deque<Process> everybody;
      for (int32_t p = 0; p < kProcesses; ++p) everybody.emplace_back(p);
      std::string heard(1, static_cast<char>(self));
      const auto begin = [&](int32_t process, size_t call) {
        const std::vector<std::byte> own(static_cast<size_t>(process) + call, static_cast<std::byte>(process));
        everybody[static_cast<size_t>(process)].start(own);
        if (process == self) heard += line(Event::Start, 0, own);
      };
      const auto deliver = [&] {
        for (bool isMore = true; isMore;) {
          isMore = false;
          for (int32_t from = 0; from < kProcesses; ++from) {
            for (const Process::Said& one : std::exchange(everybody[static_cast<size_t>(from)].said, {})) {
              isMore = true;
              if (one.to == self) heard += line(Event::Message, static_cast<uint64_t>(from), one.bytes);
              promise(everybody[static_cast<size_t>(one.to)].exchanges.take(from, one.bytes), "what another process says makes sense");
            }
          }
        }
      };
      for (size_t call = 0; call < 3; ++call) {
        if (!beginsLate) begin(self, call);
        for (int32_t p = 0; p < kProcesses; ++p)
          if (p != self) begin(p, call);
        deliver();
        if (beginsLate) begin(self, call);
        deliver();
        for (const Process& one : everybody) promise(one.isComplete(call), "an all-gather that everybody makes is complete");
      }
      all.push_back(heard);
    }
  }
  for (int32_t self = 0; self < kProcesses; ++self) {
    const std::string here(1, static_cast<char>(self));
    const std::string begun = here + line(Event::Start, 0, {});
    for (const uint8_t what : {uint8_t{253}, uint8_t{254}, uint8_t{255}}) {  // not begun, have you begun, failed
      bootstrap::Writer writer;
      writer.number(uint64_t{0});
      writer.number(what);
      if (what == 255) writer.number(static_cast<int32_t>(Code::RemoteError)), writer.text("why");
      for (const uint64_t from : {uint64_t{1}, uint64_t{2}, uint64_t{4}}) {
        const std::string message = line(Event::Message, from, writer.view());
        const std::string late = line(Event::Deadline, 0, {});
        all.push_back(here + message + line(Event::Start, 0, {}));
        all.push_back(begun + message + line(Event::Leave, from, {}));
        all.push_back(begun + late + message + late);
        all.push_back(begun + late + late + message);
      }
    }
  }
  return all;
}

}  // namespace tutti::fuzz
