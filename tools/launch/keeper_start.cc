// The keeper's beginning: limits and signals, then one rank after the other.
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launch/keeper.h"
#include "launch/variables.h"

namespace tutti::launch {
namespace {

constexpr uint64_t kDescriptorsOfRank = 3;  // output, errors, post
constexpr uint64_t kDescriptorsBeside = 32;

Status raiseDescriptors(int ranks, int nodes) {
  const uint64_t needed = kDescriptorsOfRank * static_cast<uint64_t>(ranks) + static_cast<uint64_t>(nodes) + kDescriptorsBeside;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return error(Code::SystemError, "getrlimit: {}", std::strerror(errno));
  if (limit.rlim_cur >= needed) return {};
  if (limit.rlim_max < needed) {
    return error(Code::SystemError, "{} ranks need {} file descriptors; {} are allowed (ulimit -Hn)", ranks, needed, limit.rlim_max);
  }
  limit.rlim_cur = needed;
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return {};
  return error(Code::SystemError, "{} file descriptors are needed: {}", needed, std::strerror(errno));
}

std::vector<int> allowedCores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

/// A TCP port that nobody uses at the moment, for programs that rendezvous at MASTER_PORT.
std::string findFreePort() {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (!socket || bind(socket.get(), any, size) != 0 || getsockname(socket.get(), any, &size) != 0) return "29500";
  return format("{}", ntohs(address.sin_port));
}

struct Pipe {
  Descriptor reading;
  Descriptor writing;
};

Result<Pipe> makePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail(Code::SystemError, "no pipe for a rank's output: {}", std::strerror(errno));
  Pipe made{Descriptor(ends[0]), Descriptor(ends[1])};
  // The rank's end stays as programs expect it: blocking.
  if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) return fail(Code::SystemError, "fcntl: {}", std::strerror(errno));
  return made;
}

}  // namespace

Status Keeper::prepare() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&taken, signal);
  *signals_.receive() = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
  if (!signals_) return error(Code::SystemError, "signalfd: {}", std::strerror(errno));
  if (sigprocmask(SIG_BLOCK, &taken, nullptr) != 0) return error(Code::SystemError, "sigprocmask: {}", std::strerror(errno));
  // Orphans of the ranks come to this process instead of init.
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return error(Code::SystemError, "prctl: {}", std::strerror(errno));
  TUTTI_TRY(raiseDescriptors(options_.ranks, options_.nodes));
  if (options_.isBound) {
    cores_ = allowedCores();
    if (cores_.empty()) return error(Code::SystemError, "--bind: the cores of this process are unknown: {}", std::strerror(errno));
  }
  if (options_.nodes > 0) {
    Result<Nodes> nodes = Nodes::make(options_.nodes);
    if (!nodes) return nodes.error();
    nodes_ = *std::move(nodes);
  }
  masterPort_ = findFreePort();
  return {};
}

Status Keeper::start() {
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const std::string prefix = options_.hasPrefix ? rankPrefix(rank, options_.ranks) : "";
    ranks_.push_back(Rank{.streams = {{Descriptor(), LineCutter(prefix)}, {Descriptor(), LineCutter(prefix)}}});
    TUTTI_TRY(startRank(rank));
  }
  return {};
}

/// In blocks: with 5 ranks on 2 nodes, 0 to 2 and 3 to 4.
Keeper::Block Keeper::blockOf(int rank) const {
  if (nodes_.count() == 0) return {0, 0, options_.ranks};
  Block block;
  for (;; ++block.node) {
    block.ranks = options_.ranks / nodes_.count() + (block.node < options_.ranks % nodes_.count() ? 1 : 0);
    if (rank < block.first + block.ranks) return block;
    block.first += block.ranks;
  }
}

std::vector<std::string> Keeper::environmentOf(int rank, int descriptor) const {
  Environment environment = readEnvironment();
  const Block block = blockOf(rank);
  const auto set = [&](const char* name, const std::string& value) { environment.insert_or_assign(name, value); };
  set("RANK", format("{}", rank));
  set("WORLD_SIZE", format("{}", options_.ranks));
  set("LOCAL_RANK", format("{}", rank - block.first));
  set("LOCAL_WORLD_SIZE", format("{}", block.ranks));
  set("TUTTI_RUN_FD", format("{}", descriptor));
  set("TUTTI_RUN_RANK", format("{}", rank));
  environment.erase("TUTTI_RUN_NODES");
  if (nodes_.count() > 0) set("TUTTI_RUN_NODES", format("{}", nodes_.count()));
  // For programs that find each other as under torchrun.
  set("MASTER_ADDR", nodes_.count() > 0 ? Nodes::addressOf(0) : "127.0.0.1");
  set("MASTER_PORT", masterPort_);
  std::vector<std::string> list;
  for (const auto& [name, value] : environment) list.push_back(format("{}={}", name, value));
  return list;
}

Status Keeper::startRank(int rank) {
  Rank& started = ranks_[static_cast<size_t>(rank)];
  Result<Pipe> output = makePipe();
  if (!output) return output.error();
  Result<Pipe> errors = makePipe();
  if (!errors) return errors.error();
  Result<Descriptor> post = post_.open(static_cast<size_t>(rank));
  if (!post) return post.error();
  ChildSetup setup;
  setup.command = options_.command;
  setup.environment = environmentOf(rank, post->get());
  setup.output = output->writing.get();
  setup.errors = errors->writing.get();
  setup.post = post->get();
  if (!cores_.empty()) setup.core = cores_[static_cast<size_t>(rank) % cores_.size()];
  if (nodes_.count() > 0) setup.network = nodes_.descriptor(blockOf(rank).node);
  setup.inherited = inherited_;
  const Result<pid_t> pid = startChild(setup);
  if (!pid) {
    post_.close(static_cast<size_t>(rank));
    return pid.error();
  }
  started.pid = *pid;
  started.streams[0].source = std::move(output->reading);
  started.streams[1].source = std::move(errors->reading);
  hasChildren_ = true;
  return {};
}

}  // namespace tutti::launch
