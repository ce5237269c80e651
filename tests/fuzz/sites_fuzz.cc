// What the processes of a communicator say of their places. The input is a letter that says which: 's', what some of four processes on
// three hosts give to the exchange of topologies in place of what they should, and the topologies themselves; 'n', the notes of its ranks.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include "comm/founding.h"
#include "comm/round_mesh.h"
#include "comm/sites.h"
#include "connect/layout.h"
#include "fuzz/some_hosts.h"
#include "fuzz/target.h"

namespace tutti::fuzz {
namespace {

using namespace comm;
using bootstrap::Roster;

const std::vector<int32_t> kHostOf = {0, 1, 1, 2};
constexpr size_t kProcesses = 4;
constexpr std::string_view kMachine = R"(<system version="1"><cpu numaid="0" affinity="3" arch="x86_64"/></system>)";
constexpr std::string_view kOther = R"(<system version="1"><cpu numaid="1" affinity="c" arch="arm64"/></system>)";

/// A line: which process, what, how many bytes, the bytes.
enum class What : uint8_t { Machine, Settings, Words, Xml };
constexpr unsigned kWhats = 4;

std::string line(size_t process, What what, std::string_view bytes) {
  std::string text = {static_cast<char>(process), static_cast<char>(what), static_cast<char>(bytes.size()),
                      static_cast<char>(bytes.size() >> 8)};
  return text.append(bytes);
}

/// What a process has, and what it gives instead in the two rounds.
struct Given {
  std::string machine{kMachine};
  uint64_t settings = 0;
  std::array<std::optional<std::string>, 2> instead;

  bool isHonest() const { return !instead[0] && !instead[1]; }
};

std::vector<Given> read(std::string_view text) {
  std::vector<Given> all(kProcesses);
  while (text.size() >= 4) {
    const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    Given& of = all[at(0) % kProcesses];
    const auto what = static_cast<What>(at(1) % kWhats);
    const std::string_view bytes = text.substr(4, at(2) | size_t{at(3)} << 8);
    if (what == What::Machine) of.machine = bytes;
    if (what == What::Settings) of.settings = bytes.size();
    if (what == What::Words) of.instead[0] = bytes;
    if (what == What::Xml) of.instead[1] = bytes;
    text.remove_prefix(4 + bytes.size());
  }
  return all;
}

std::string textOf(const topo::Document* machine) { return machine == nullptr ? "none" : topo::writeXml(machine->root); }

/// Honest processes come to the same, whatever the others give; and what they take for an honest one's machine is what it said.
void exchange(std::string_view text) {
  const std::vector<Given> given = read(text);
  play::Rounds rounds(kProcesses);
  rounds.spoil = [&](size_t round, int32_t process, std::vector<std::byte>& part) {
    const auto& instead = given[static_cast<size_t>(process)].instead[round];
    promise(round < 2, "there are two rounds");
    if (!instead) return;
    const auto bytes = std::as_bytes(std::span(*instead));
    part.assign(bytes.begin(), bytes.end());
  };
  std::vector<std::unique_ptr<Roster>> rosters;
  std::vector<std::unique_ptr<SitesExchange>> exchanges;
  for (size_t p = 0; p < kProcesses; ++p) {
    rosters.push_back(std::make_unique<Roster>(someHosts<Roster>(kHostOf, static_cast<int32_t>(p))));
    rosters[p]->mesh = std::make_shared<play::RoundMesh>(rounds, static_cast<int32_t>(p));
    exchanges.push_back(std::make_unique<SitesExchange>(*rosters[p], siteOf(given[p].machine, given[p].settings)));
  }
  std::shared_ptr<const Sites> common;
  for (int turn = 0; turn < 2; ++turn)
    for (const auto& one : exchanges) (void)one->poll();
  for (size_t p = 0; p < kProcesses; ++p) {
    if (!given[p].isHonest()) continue;
    const auto outcome = exchanges[p]->poll();
    promise(outcome && *outcome && **outcome != nullptr, "with all parts it ends, and well");
    const Sites& sites = ***outcome;
    if (common == nullptr) common = **outcome;
    promise(sites.whyNot == common->whyNot && sites.hashOf == common->hashOf, "honest processes come to the same");
    promise(sites.whyNot.size() <= 4096, "why not is said in a few words");
    if (!sites.whyNot.empty()) continue;
    for (size_t q = 0; q < kProcesses; ++q) {
      const topo::Document* const seen = sites.machineOf(static_cast<int32_t>(q));
      promise(seen != nullptr, "without a reason against it every machine is known");
      promise(textOf(seen) == textOf(common->machineOf(static_cast<int32_t>(q))), "all see the same machines");
      if (!given[q].isHonest()) continue;
      const auto own = topo::parseXml("its own", given[q].machine);
      promise(own && textOf(seen) == textOf(&*own), "and the ones that were said");
    }
  }
}

/// Who is let in has the place of its rank, and numbers that can be counted with.
void meet(std::string_view text) {
  auto roster = someHosts<Roster>(kHostOf, 1);
  roster.notes.assign(kProcesses, noteOf({}));
  for (bootstrap::Note& note : roster.notes) {
    const size_t size = std::min(text.size(), note.size());
    std::memcpy(note.data(), text.data(), size);
    text.remove_prefix(size);
  }
  const auto arrivals = arrivalsOf(roster);
  if (!arrivals) return promise(arrivals.error().text().find("rank ") != std::string::npos, "an error names the rank");
  const Grouping grouping = formGroups(*arrivals);
  promise(grouping.members.size() == 1 && grouping.members[0].size() == kProcesses, "all ranks are in one communicator");
  std::vector<connect::RankPlace> places;
  for (size_t r = 0; r < kProcesses; ++r) {
    const Place& place = grouping.places[r];
    promise(place.rank == Rank(static_cast<int32_t>(r)) && place.ranks == kProcesses, "each has the place of its rank");
    promise(place.cores >= 1 && place.multiprocessors >= 0 && place.caches >= 0 && place.minCtas >= 1 && place.maxCtas >= 1,
            "what they agree on can be");
    places.push_back({kHostOf[r], (*arrivals)[r].numa, (*arrivals)[r].cache});
  }
  const connect::Layout layout = connect::Layout::byPlace(places);
  const std::vector<int32_t> ring = layout.rings()[0];
  promise(ring.size() == kProcesses && std::set<int32_t>(ring.begin(), ring.end()).size() == kProcesses, "a ring passes every rank");
}

std::string wordsOf(uint64_t hash, uint64_t settings, uint64_t bytes) {
  const std::array<uint64_t, 3> words = {hash, settings, bytes};
  return {reinterpret_cast<const char*>(words.data()), sizeof words};
}

std::string notesOf(const std::array<Arrival, kProcesses>& arrivals) {
  std::string text = "n";
  for (const Arrival& arrival : arrivals) {
    const bootstrap::Note note = noteOf(arrival);
    text.append(reinterpret_cast<const char*>(note.data()), note.size());
  }
  return text;
}

}  // namespace

void run(std::string_view input) {
  if (input.empty()) return;
  return input.front() == 'n' ? meet(input.substr(1)) : exchange(input.substr(1));
}

std::vector<std::string> seeds() {
  const uint64_t hash = siteOf(std::string(kMachine), 0).hash;
  const uint64_t other = siteOf(std::string(kOther), 0).hash;
  const auto machine = [](size_t process, std::string_view text) { return line(process, What::Machine, text); };
  std::vector<std::string> all = {
      "s",                                            // all are alike
      "s" + machine(3, kOther),                       // one host is not
      "s" + machine(1, kOther) + machine(2, kOther),  // likewise, of two processes
      "s" + machine(2, kOther),                       // one host in two ways
      "s" + machine(0, ""),                           // not known
      "s" + line(3, What::Settings, "x"),             // other settings
      "s" + machine(3, "<system"),                    // what cannot be parsed
      "s" + line(0, What::Words, ""),                 // a part of no size that it may have
      "s" + line(3, What::Words, wordsOf(other, 0, kOther.size())) + line(3, What::Xml, kOther),
      "s" + line(3, What::Words, wordsOf(other, 0, kOther.size())) + line(3, What::Xml, kMachine),  // another than was announced
      "s" + line(3, What::Words, wordsOf(other, 0, kOther.size())) + line(3, What::Xml, "<system"),
      "s" + line(3, What::Words, wordsOf(other, 0, uint64_t{1} << 40)) + line(3, What::Xml, kOther),
      "s" + line(0, What::Words, wordsOf(hash, 0, kMachine.size())) + line(0, What::Xml, kOther) + machine(3, kOther),
  };
  std::array<Arrival, kProcesses> arrivals;
  for (int32_t r = 0; r < static_cast<int32_t>(kProcesses); ++r) arrivals[static_cast<size_t>(r)] = {0, r, 1, 64, 4};
  all.push_back(notesOf(arrivals));
  for (Arrival& arrival : arrivals) arrival.multiprocessors = 132, arrival.gpu = arrival.key, arrival.numa = 0, arrival.cache = 1;
  all.push_back(notesOf(arrivals));
  const auto spoiled = [&](auto&& change) {
    auto some = arrivals;
    change(some[2]);
    all.push_back(notesOf(some));
  };
  spoiled([](Arrival& a) { a.color = kNoColor; });
  spoiled([](Arrival& a) { a.color = 1; });
  spoiled([](Arrival& a) { a.key = 0; });
  spoiled([](Arrival& a) { a.minCtas = 0; });
  spoiled([](Arrival& a) { a.maxCtas = -1; });
  spoiled([](Arrival& a) { a.cores = INT32_MAX; });
  spoiled([](Arrival& a) { a.multiprocessors = -1; });
  spoiled([](Arrival& a) { a.gpu = -2; });
  spoiled([](Arrival& a) { a.numa = INT32_MAX; });
  spoiled([](Arrival& a) { a.caches = -1; });
  spoiled([](Arrival& a) { a.hasFailed = 2; });
  return all;
}

}  // namespace tutti::fuzz
