#include "fuzz/filter_fuzz.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "tune/filter.h"

namespace tutti::fuzz {
namespace {

const std::vector<std::string_view> kNames = {"Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree",
                                              "PAT",  "LL",   "LL128",         "oneshot"};

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

void parseFilters(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto filter = tune::Filter::parse("NCCL_ALGO", text, kNames);
  if (!filter) {
    require(filter.error().code() == Code::InvalidUsage && filter.error().text().find("NCCL_ALGO") != std::string::npos);
    return;
  }
  for (int i = 0; i < kNumCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    size_t allowed = 0;
    for (const std::string_view one : kNames) allowed += filter->allows(collective, one) ? 1 : 0;
    if (!filter->restricts(collective)) require(allowed == kNames.size());
    // A clause that was accepted has a name in it: a list allows that one, an inverted one does not.
    if (filter->restricts(collective)) require(text.find('^') == std::string::npos ? allowed > 0 : true);
    if (filter->names(collective)) require(filter->restricts(collective));
  }
  // Nothing depends on case, and the same text always means the same.
  std::string upper = text;
  for (char& c : upper) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  const auto again = tune::Filter::parse("NCCL_ALGO", upper, kNames);
  require(again.has_value());
  for (int i = 0; i < kNumCollectives; ++i)
    for (const std::string_view one : kNames)
      require(again->allows(static_cast<Collective>(i), one) == filter->allows(static_cast<Collective>(i), one));
}

}  // namespace tutti::fuzz

#ifdef TUTTI_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size <= 1 << 14) tutti::fuzz::parseFilters(data, size);
  return 0;
}
#endif
