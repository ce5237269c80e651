// The grammar of NCCL_ALGO, NCCL_PROTO and TUTTI_ALGO: what is accepted must hold what its own text says.
#include "fuzz/target.h"

#include <string>
#include <string_view>

#include "tune/filter.h"

namespace tutti::fuzz {
namespace {

const std::vector<std::string_view> kNames = {"Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree",
                                              "PAT",  "LL",   "LL128",         "oneshot"};

}  // namespace

void run(std::string_view input) {
  const std::string text(input);
  const auto filter = tune::Filter::parse("NCCL_ALGO", text, kNames);
  if (!filter) {
    return promise(filter.error().code() == Code::InvalidUsage && filter.error().text().find("NCCL_ALGO") != std::string::npos,
                   "an error names the variable");
  }
  for (int i = 0; i < kNumCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    size_t allowed = 0;
    for (const std::string_view one : kNames) allowed += filter->allows(collective, one) ? 1 : 0;
    if (!filter->restricts(collective)) promise(allowed == kNames.size(), "what is not restricted allows all");
    // A clause that was accepted has a name in it: a list allows that one, an inverted one does not.
    if (filter->restricts(collective)) promise(text.find('^') != std::string::npos || allowed > 0, "a list allows what it names");
    if (filter->names(collective)) promise(filter->restricts(collective), "what is named is restricted");
  }
  // Nothing depends on case, and the same text always means the same.
  std::string upper = text;
  for (char& c : upper) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  const auto again = tune::Filter::parse("NCCL_ALGO", upper, kNames);
  promise(again.has_value(), "case does not matter");
  for (int i = 0; i < kNumCollectives; ++i)
    for (const std::string_view one : kNames)
      promise(again->allows(static_cast<Collective>(i), one) == filter->allows(static_cast<Collective>(i), one),
              "the same text means the same");
}

std::vector<std::string> seeds() {
  return {"Ring", "^tree,PAT", "allreduce:tree;broadcast:ring", "ring;allreduce:^tree,nvls", ";;", ":", "^", "LL,Simple",
          "allgather:pat;reducescatter:pat;ring", ""};
}

}  // namespace tutti::fuzz
