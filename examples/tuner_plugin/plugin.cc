// An external tuner, complete and small: it chooses by rules that a user writes down, and exports what a plugin exports in the versions
// 3 to 5 of its interface.
//
// TUNER_EXAMPLE holds rules, separated by `;`: COLLECTIVE FROM TO ALGORITHM PROTOCOL CHANNELS, as in
//   TUNER_EXAMPLE="allreduce 0 65536 tree simple 2; allgather 1048576 0 ring ll128 0"
// The first rule that fits a call is taken: sizes in bytes, TO 0 for no end, CHANNELS 0 for no wish. TUNER_EXAMPLE_BREAK=init, ask,
// channels, nan or absent makes it misbehave there, which is what a library that loads plugins has to live with.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <strings.h>
#include <vector>

#include "tune/plugin/abi.h"

namespace {

namespace abi = tutti::tune::plugin::abi;

constexpr int kSuccess = 0;
constexpr int kInvalidUsage = 5;
constexpr int kInternalError = 3;
constexpr float kNotThere = -1;
constexpr const char* kCollectives[] = {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"};
constexpr const char* kAlgorithms[] = {"tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"};
constexpr const char* kProtocols[] = {"ll", "ll128", "simple"};

struct Rule {
  int collective = 0;
  size_t from = 0;
  size_t to = 0;
  int algorithm = 0;
  int protocol = 0;
  int channels = 0;
};

/// One for each communicator.
struct Context {
  std::vector<Rule> rules;
};

bool broken(const char* where) {
  const char* const what = std::getenv("TUNER_EXAMPLE_BREAK");
  return what != nullptr && std::strcmp(what, where) == 0;
}

template <size_t N>
int place(const char* word, const char* const (&names)[N]) {
  for (size_t i = 0; i < N; ++i)
    if (strcasecmp(word, names[i]) == 0) return static_cast<int>(i);
  return -1;
}

bool parse(const std::string& text, Rule& rule) {
  char collective[32];
  char algorithm[32];
  char protocol[32];
  const int fields = std::sscanf(text.c_str(), "%31s %zu %zu %31s %31s %d", collective, &rule.from, &rule.to, algorithm, protocol,
                                 &rule.channels);
  if (fields != 6) return false;
  rule.collective = place(collective, kCollectives);
  rule.algorithm = place(algorithm, kAlgorithms);
  rule.protocol = place(protocol, kProtocols);
  return rule.collective >= 0 && rule.algorithm >= 0 && rule.protocol >= 0;
}

int start(abi::Logger log, void** context) {
  if (broken("init")) return kInternalError;
  auto* const made = new Context;
  const char* const given = std::getenv("TUNER_EXAMPLE");
  std::string rest = given == nullptr ? "" : given;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(';'), rest.size());
    const std::string text = rest.substr(0, end);
    rest.erase(0, std::min(end + 1, rest.size()));
    Rule rule;
    if (parse(text, rule)) {
      made->rules.push_back(rule);
    } else if (text.find_first_not_of(' ') != std::string::npos) {
      constexpr int kWarn = 2;
      if (log != nullptr) log(kWarn, ~0UL, __FILE__, __LINE__, "TUNER_EXAMPLE: no rule: '%s'", text.c_str());
      delete made;
      return kInvalidUsage;
    }
  }
  *context = made;
  return kSuccess;
}

int initV5(void** context, uint64_t /*commId*/, size_t /*ranks*/, size_t /*nodes*/, abi::Logger log, abi::NvlDomainsV5* domains,
           abi::ConstantsV5* constants) {
  // What the library knows of the machine is there to be looked at.
  if (domains->nNvlDomains < 1 || !(constants->baseLatencies[1][2] > 0)) return kInternalError;
  return start(log, context);
}

int init(size_t /*ranks*/, size_t /*nodes*/, abi::Logger log, void** context) { return start(log, context); }

int ask(void* context, int collective, size_t bytes, int /*calls*/, float** costs, int algorithms, int protocols, int /*regBuff*/,
        int* channels) {
  if (broken("ask")) return kInternalError;
  float* const table = reinterpret_cast<float*>(costs);  // rows of `protocols`, one after the other
  const auto entry = [&](int algorithm, int protocol) -> float& { return table[algorithm * protocols + protocol]; };
  if (broken("channels")) *channels = -5;
  if (broken("nan")) entry(1, 2) = NAN;
  if (broken("absent"))
    for (int a = 0; a < algorithms; ++a)
      if (entry(a, 0) == kNotThere) entry(a, 0) = 0;
  for (const Rule& rule : static_cast<const Context*>(context)->rules) {
    if (rule.collective != collective || bytes < rule.from || (rule.to != 0 && bytes > rule.to)) continue;
    if (rule.algorithm >= algorithms || rule.protocol >= protocols || entry(rule.algorithm, rule.protocol) == kNotThere) continue;
    entry(rule.algorithm, rule.protocol) = 0;
    *channels = rule.channels;
    break;
  }
  return kSuccess;
}

int askV3(void* context, int collective, size_t bytes, int calls, float** costs, int algorithms, int protocols, int* channels) {
  return ask(context, collective, bytes, calls, costs, algorithms, protocols, 0, channels);
}

int finish(void* context) {
  delete static_cast<Context*>(context);
  return kSuccess;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))
EXPORTED const abi::TunerV5 ncclTunerPlugin_v5 = {"Example", initV5, ask, finish};
EXPORTED const abi::TunerV4 ncclTunerPlugin_v4 = {"Example", init, ask, finish};
EXPORTED const abi::TunerV3 ncclTunerPlugin_v3 = {"Example", init, askV3, finish};
