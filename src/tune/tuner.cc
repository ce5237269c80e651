#include "tune/tuner.h"

#include <algorithm>
#include <cmath>

#include "observe/log.h"
#include "tune/choose.h"

namespace tutti::tune {

CostTable emptyTable() {
  CostTable table;
  for (auto& row : table) row.fill(kNotThere);
  return table;
}

void offer(CostTable& table, Row row, double us) {
  float& entry = table[static_cast<size_t>(row.algorithm)][static_cast<size_t>(row.protocol)];
  entry = entry < 0 ? static_cast<float>(us) : std::min(entry, static_cast<float>(us));
}

bool Adviser::isAsked(Collective collective) const { return tuner_ != nullptr && !hasFailed_ && isGoverned(collective); }

void Adviser::warnOnce(const std::string& what) {
  if (!hasWarned_) observe::warn("tuner {}: {}", tuner_->name(), what);
  hasWarned_ = true;
}

Advice Adviser::ask(Collective collective, uint64_t bytes, const CostTable& table) {
  Advice advice;
  advice.table = table;
  const auto channels = tuner_->ask(collective, bytes, advice.table);
  if (!channels) {
    warnOnce(format("{}; its advice is not asked for any more", channels.error().text()));
    hasFailed_ = true;
    return {};
  }
  std::string nonsense;
  if (*channels < 0 || *channels > kMostTunedChannels)
    nonsense =
        format("wants {} channels for {} of {} bytes: expected 0 to {}", *channels, tutti::name(collective), bytes, kMostTunedChannels);
  Row best;
  float least = -1;
  for (size_t a = 0; a < kNcclAlgorithms; ++a) {
    for (size_t p = 0; p < kNcclProtocols; ++p) {
      const float was = table[a][p];
      const float is = advice.table[a][p];
      const Row row{static_cast<NcclAlgorithm>(a), static_cast<NcclProtocol>(p)};
      if (is == was) {
        if (was >= 0 && (least < 0 || was < least)) least = was, best = row;
        continue;
      }
      if (was < 0) {
        nonsense = format("wants {} {} for {}, which is not there", name(row.algorithm), name(row.protocol), tutti::name(collective));
      } else if (!std::isfinite(is) || is < 0) {
        nonsense = format("estimates {} {} for {} at {} us", name(row.algorithm), name(row.protocol), tutti::name(collective), is);
      }
      if (least < 0 || is < least) least = is, best = row;
      advice.isChanged = true;
    }
  }
  if (!nonsense.empty()) {
    warnOnce(format("{}; such answers are ignored", nonsense));
    return {};
  }
  advice.channels = *channels;
  advice.said = tuner_->name() + ":";
  if (advice.isChanged) advice.said += format(" {} {}", name(best.algorithm), name(best.protocol));
  if (advice.channels > 0) advice.said += format("{} {} channels", advice.isChanged ? "," : "", advice.channels);
  if (!advice.isChanged && advice.channels == 0) advice.said += " no wish";
  return advice;
}

}  // namespace tutti::tune
