// NCCL_ALGO, NCCL_PROTO and TUTTI_ALGO: which algorithms a communicator may use for which collective.
//
// Owner: the communicator; parsed once when it is created, immutable afterwards.
// Grammar: `[collective:]list;collective:list…`, a list is comma-separated names, `^` in front of it means "all but these". A list
// without a collective is the default of all that are not named. Case does not matter.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/types.h"

namespace tutti::tune {

class Filter {
 public:
  /// Everything is allowed.
  Filter() = default;

  /// `variable` names the source in errors. `known` are the valid names; any other is InvalidUsage, with the list of them.
  static Result<Filter> parse(std::string_view variable, std::string_view text, const std::vector<std::string_view>& known);

  bool allows(Collective collective, std::string_view name) const;
  /// Whether the text restricts this collective at all.
  bool restricts(Collective collective) const { return rules_[static_cast<size_t>(collective)].given; }
  /// Whether a clause names this collective.
  bool names(Collective collective) const { return rules_[static_cast<size_t>(collective)].named; }
  /// "NCCL_ALGO=ring"; empty when nothing was set.
  const std::string& source() const { return source_; }

 private:
  struct Rule {
    bool given = false;
    bool named = false;
    bool inverted = false;
    std::vector<std::string> names;  // lower case
  };
  std::array<Rule, kNumCollectives> rules_;
  std::string source_;
};

}  // namespace tutti::tune
