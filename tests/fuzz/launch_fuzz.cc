// What processes of a job read to find each other: variables of launchers, Slurm's lists, PMI's lines, and sealed messages of strangers.
// The input is a letter that says which, and the text or the bytes.
#include "fuzz/target.h"

#include <cstring>
#include <span>

#include "launch/by_pmi.h"
#include "launch/hostlist.h"
#include "launch/rank.h"
#include "launch/wire.h"

namespace tutti::fuzz {
namespace {

using namespace launch;

/// NAME=VALUE on each line.
void readVariables(std::string_view text) {
  Environment environment;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t sign = line.find('=');
    if (sign != std::string_view::npos && sign > 0) environment[std::string(line.substr(0, sign))] = line.substr(sign + 1);
  }
  const Result<Standing> found = findStanding(environment);
  if (!found) return promise(!found.error().text().empty(), "an error has words");
  const Standing& standing = *found;
  promise(!name(standing.launcher).empty(), "a launcher has a name");
  promise(standing.rank >= 0 && standing.rank < standing.ranks, "a rank is one of the job's");
  if (standing.localRanks != kUnknown) {
    promise(standing.localRanks >= 1 && standing.localRanks <= standing.ranks, "a host has no more ranks than the job");
    promise(standing.localRank >= 0 && standing.localRank < standing.localRanks, "a local rank is one of the host's");
  }
  if (!standing.isLaunched()) promise(standing.ranks == 1, "without a launcher a process is alone");
}

void readLists(std::string_view text) {
  if (const Result<std::string> host = firstHost(text))
    promise(!host->empty() && host->find_first_of("[],") == std::string::npos, "a host is one name");
  for (const int64_t node : {int64_t{0}, int64_t{1}, int64_t{1000}})
    if (const Result<int> tasks = tasksOfNode(text, node)) promise(*tasks >= 0, "no node has fewer than no tasks");
}

void readLine(std::string_view line) {
  const std::string_view value = pmiValue(line, "value");
  promise(value.find(' ') == std::string_view::npos, "a value is one word");
  promise(value.empty() || line.find(value) != std::string_view::npos, "a value is in its line");
  const Result<ncclUniqueId> id = fromHex(line);
  if (!id) return;
  std::string lower(line);
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);
  promise(toHex(*id) == lower, "an id and its digits are the same");
}

/// A stranger's bytes open with nobody's key; the own message does as it was sealed, and not otherwise.
void open(std::string_view bytes) {
  promise(startSeals().ok(), "seals can be used");
  static const Key key = keyOf("job", "secret");
  const Key session = sessionKey(key, Nonce{1}, Nonce{2});
  const auto all = std::as_bytes(std::span(bytes));
  wire::Request request;
  wire::Answer answer;
  wire::Thanks thanks;
  promise(!wire::unsealed(session, wire::kRequest, all, request) && !wire::unsealed(session, wire::kAnswer, all, answer) &&
              !wire::unsealed(session, wire::kThanks, all, thanks),
          "a stranger has no key");
  if (bytes.size() < sizeof request + 2) return;
  std::memcpy(&request, bytes.data(), sizeof request);
  auto sealed = wire::sealed(session, wire::kRequest, request);
  wire::Request opened;
  promise(wire::unsealed(session, wire::kRequest, sealed, opened) && opened.rank == request.rank && opened.ranks == request.ranks,
          "what was sealed opens");
  promise(!wire::unsealed(session, wire::kThanks, sealed, opened), "but under its own number alone");
  const auto at = static_cast<unsigned char>(bytes[sizeof request]) % sealed.size();
  const auto flips = static_cast<unsigned char>(bytes[sizeof request + 1]);
  if (flips == 0) return;
  sealed[at] ^= static_cast<std::byte>(flips);
  promise(!wire::unsealed(session, wire::kRequest, sealed, opened), "and not when it was changed");
}

}  // namespace

void run(std::string_view input) {
  if (input.empty()) return;
  const std::string_view rest = input.substr(1);
  switch (input.front()) {
    case 'v': return readVariables(rest);
    case 'l': return readLists(rest);
    case 'p': return readLine(rest);
    default: return open(rest);
  }
}

std::vector<std::string> seeds() {
  ncclUniqueId id{};
  for (size_t i = 0; i < sizeof id.internal; ++i) id.internal[i] = static_cast<char>(i * 7);
  std::vector<std::string> all;
  for (const char* text :
       {"vRANK=1\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=4\nTUTTI_RUN_FD=7\nTUTTI_RUN_RANK=1\n",
        "vRANK=5\nWORLD_SIZE=8\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=4\nMASTER_ADDR=head\nMASTER_PORT=29500\nTORCHELASTIC_RUN_ID=none\n",
        "vOMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_LOCAL_RANK=0\nOMPI_COMM_WORLD_LOCAL_SIZE=2\nPMIX_NAMESPACE=18\n"
        "OMPI_MCA_orte_hnp_uri=18.0;tcp://192.0.2.2,10.0.0.1:34929;tcp6://[fd00::2]:44933\n",
        "vPMI_RANK=2\nPMI_SIZE=3\nPMI_FD=8\nMPI_LOCALRANKID=2\nMPI_LOCALNRANKS=3\n",
        "vSLURM_JOB_ID=77\nSLURM_STEP_ID=0\nSLURM_PROCID=9\nSLURM_NTASKS=11\nSLURM_LOCALID=1\nSLURM_NODEID=2\n"
        "SLURM_STEP_TASKS_PER_NODE=4(x2),3\nSLURM_STEP_NODELIST=node[07-09]\n",
        "lnode[01-03,7],gpu-b2", "lrack[2-4]n[05,7]x,other", "l4(x2),3", "l2,1(x3),5", "pcmd=get_result rc=0 value=abc"})
    all.emplace_back(text);
  all.push_back("p" + toHex(id));
  all.emplace_back("s\0\0\0\1\0\0\0\4\5\6", 11);
  all.push_back(std::string(1 + sizeof(wire::Sealed<wire::Answer>), 's'));
  return all;
}

}  // namespace tutti::fuzz
