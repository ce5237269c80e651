#include "comm/sites.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/format.h"
#include "core/hash.h"

namespace tutti::comm {
namespace {

/// None of its own, in effect: a process that creates without blocking may poll late. Losses, goodbyes and set-ups' deadlines end it;
/// whose part is missing then is named by missing().
constexpr std::chrono::hours kPatience{24};
using Words = std::array<uint64_t, 3>;  // hash, settings, bytes of the XML

}  // namespace

Site siteOf(std::string xml, uint64_t settings) {
  if (xml.empty() || xml.size() > kMostSiteBytes) return {{}, 0, settings};
  const uint64_t hash = hashOfKnown(xml);
  return {std::move(xml), hash, settings};
}

const topo::Document* Sites::machineOf(int32_t process) const {
  const auto found = machines.find(hashOf[static_cast<size_t>(process)]);
  return found == machines.end() ? nullptr : &found->second;
}

SitesExchange::SitesExchange(const bootstrap::Roster& roster, Site own) : roster_(roster), own_(std::move(own)) {
  const Words words = {own_.hash, own_.settings, own_.xml.size()};
  hashes_ = roster_.mesh->allGather(std::as_bytes(std::span(words)), kPatience);
}

std::optional<Result<std::shared_ptr<const Sites>>> SitesExchange::poll() {
  if (outcome_) return outcome_;
  if (hashOf_.empty()) {
    const auto gathered = hashes_->poll();
    if (!gathered) return std::nullopt;
    if (!*gathered) return outcome_ = tl::unexpected(gathered->error());
    for (const std::vector<std::byte>& part : ***gathered) {
      Words words{};
      if (part.size() == sizeof words) std::memcpy(words.data(), part.data(), sizeof words);  // otherwise not known
      hashOf_.push_back(words[0]);
      settingsOf_.push_back(words[1]);
      bytesOf_.push_back(words[2]);
    }
    if (!whyNot().empty() || !differs()) return outcome_ = finish({});
    const bool gives = firstWith(own_.hash) == roster_.ownProcess;
    const std::string_view xml = gives ? std::string_view(own_.xml) : std::string_view();
    xmls_ = roster_.mesh->allGather(std::as_bytes(std::span(xml.data(), xml.size())), kPatience);
  }
  const auto gathered = xmls_->poll();
  if (!gathered) return std::nullopt;
  return outcome_ = *gathered ? finish(***gathered) : Result<std::shared_ptr<const Sites>>(tl::unexpected(gathered->error()));
}

bool SitesExchange::differs() const {
  return std::any_of(hashOf_.begin(), hashOf_.end(), [this](uint64_t hash) { return hash != hashOf_.front(); });
}

int32_t SitesExchange::firstWith(uint64_t hash) const {
  return static_cast<int32_t>(std::find(hashOf_.begin(), hashOf_.end(), hash) - hashOf_.begin());
}

/// The same text in all processes.
std::string SitesExchange::whyNot() const {
  const auto at = [](const std::vector<uint64_t>& of, int32_t process) { return of[static_cast<size_t>(process)]; };
  for (int32_t p = 0; p < static_cast<int32_t>(hashOf_.size()); ++p) {
    const int32_t first = roster_.host(roster_.process(p).host).processes.front();
    if (at(hashOf_, p) == 0) return format("{} could not find out what its machine is like", describeProcess(roster_, p));
    if (at(settingsOf_, p) != settingsOf_.front())
      return format("{} and {} have other settings for topologies", describeProcess(roster_, 0), describeProcess(roster_, p));
    if (at(hashOf_, p) != at(hashOf_, first))
      return format("{} and {} are on one host and see different machines or nets", describeProcess(roster_, first),
                    describeProcess(roster_, p));
  }
  const uint64_t most = std::min<uint64_t>(kMostSiteBytes, bootstrap::Mesh::kMostMessageBytes / hashOf_.size());
  const bool isSent = differs();
  for (int32_t p = 0; isSent && p < static_cast<int32_t>(hashOf_.size()); ++p)
    if (at(bytesOf_, p) > most)
      return format("the topology of {} has {} bytes; {} processes whose hosts differ send {} each at most", describeProcess(roster_, p),
                    at(bytesOf_, p), hashOf_.size(), most);
  return {};
}

/// `xmls`: by process; empty: all machines are like the own one.
Result<std::shared_ptr<const Sites>> SitesExchange::finish(std::span<const std::vector<std::byte>> xmls) {
  auto sites = std::make_shared<Sites>();
  sites->hashOf = hashOf_;
  sites->whyNot = whyNot();
  for (size_t p = 0; p < hashOf_.size() && sites->whyNot.empty(); ++p) {
    const int32_t process = firstWith(hashOf_[p]);
    if (process != static_cast<int32_t>(p)) continue;
    const auto& part = xmls.empty() ? std::vector<std::byte>() : xmls[p];
    const std::string_view text = xmls.empty() ? std::string_view(own_.xml)
                                               : std::string_view(reinterpret_cast<const char*>(part.data()), part.size());
    const std::string giver = describeProcess(roster_, process);
    if (text.size() > kMostSiteBytes) {
      sites->whyNot = format("{} sent a topology of {} bytes; expected {} at most", giver, text.size(), kMostSiteBytes);
      break;
    }
    auto parsed = topo::parseXml(format("the topology of {}", giver), text);
    if (!parsed) {
      sites->whyNot = format("{} sent a topology that makes no sense: {}", giver, parsed.error().text());
    } else if (hashOfKnown(text) != hashOf_[p]) {
      sites->whyNot = format("{} sent another topology than the one it had announced", giver);
    } else {
      sites->machines.emplace(hashOf_[p], *std::move(parsed));
    }
  }
  return std::shared_ptr<const Sites>(std::move(sites));
}

}  // namespace tutti::comm
