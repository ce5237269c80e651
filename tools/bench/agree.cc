#include "bench/agree.h"

namespace tutti::bench {
namespace {

template <class T>
Status agree(Team& team, std::vector<T>& values, ncclDataType_t type, ncclRedOp_t op) {
  if (team.crew().isAlone() || values.empty()) return {};
  std::vector<T> agreed;
  const Team::Job work = [&](Member& member) -> Status {
    // The first thread speaks for its process; zeros change neither a sum nor the largest of such numbers.
    std::vector<T> numbers = member.index() == 0 ? values : std::vector<T>(values.size(), T{0});
    TUTTI_TRY(member.check(ncclAllReduce(numbers.data(), numbers.data(), numbers.size(), type, op, member.comm(), nullptr), "agreeing"));
    if (member.index() == 0) agreed = std::move(numbers);
    return {};
  };
  TUTTI_TRY(team.run("agreeing with the other processes", work));
  values = std::move(agreed);
  return {};
}

}  // namespace

Status agreeOnMax(Team& team, std::vector<double>& values) { return agree(team, values, ncclFloat64, ncclMax); }
Status agreeOnMax(Team& team, std::vector<uint64_t>& values) { return agree(team, values, ncclUint64, ncclMax); }
Status agreeOnSum(Team& team, std::vector<uint64_t>& values) { return agree(team, values, ncclUint64, ncclSum); }

}  // namespace tutti::bench
