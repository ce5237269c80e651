// Where the findings come from.
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/format.h"
#include "core/unique_fd.h"
#include "doctor/doctor.h"
#include "driver/cuda/real.h"
#include "exec/cuda/launch.h"
#include "observe/libraries.h"

namespace tutti::tool::doctor {
namespace {

constexpr const char* kFile = "libnccl.so.2";

std::string realOf(const std::string& path) {
  char real[PATH_MAX];
  return ::realpath(path.c_str(), real) == nullptr ? std::string() : std::string(real);
}

std::vector<std::string> split(const std::string& text, const char* separators) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

/// What a command prints; empty when it cannot be run.
std::string outputOf(const std::string& command) {
  std::string output;
  FILE* const pipe = popen(command.c_str(), "r");  // NOLINT(bugprone-command-processor): its words are quoted by the callers
  if (pipe == nullptr) return output;
  char part[4096];
  for (size_t got = 0; (got = fread(part, 1, sizeof part, pipe)) > 0;) output.append(part, got);
  (void)pclose(pipe);
  return output;
}

std::vector<std::string> globbed(const std::string& pattern) {
  std::vector<std::string> found;
  glob_t result{};
  if (glob(pattern.c_str(), 0, nullptr, &result) == 0)
    for (size_t i = 0; i < result.gl_pathc; ++i) found.emplace_back(result.gl_pathv[i]);
  globfree(&result);
  return found;
}

std::string quoted(const std::string& path) {
  std::string text = "'";
  for (const char c : path) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// This command once more, without what would mix two libraries.
Candidate probeApart(const std::string& path) {
  Candidate candidate;
  candidate.path = path;
  const std::string self = quoted(realOf("/proc/self/exe"));
  const std::string output = outputOf(format("env -u LD_PRELOAD {} doctor --probe {} 2>&1", self, quoted(path)));
  const auto lines = split(output, "\n");
  if (lines.size() < 2 || lines[0] != "probed") {
    candidate.error = output.empty() ? "it ends the process that opens it" : split(output, "\n").front();
    return candidate;
  }
  for (const std::string& line : lines) {
    if (line.rfind("version ", 0) == 0) candidate.version = static_cast<int>(std::strtol(line.c_str() + 8, nullptr, 10));
    if (line.rfind("tutti ", 0) == 0) candidate.tutti = line.substr(6);
    if (line.rfind("build ", 0) == 0) candidate.buildId = line.substr(6);
  }
  return candidate;
}

}  // namespace

std::vector<Candidate> findLibraries(const GetEnv& env, const std::string& cache, const std::vector<std::string>& packages,
                                     const Probe& probe) {
  std::vector<Candidate> found;
  std::vector<std::string> seen;
  const auto add = [&](const std::string& path, const char* from) {
    const std::string real = realOf(path);
    if (real.empty() && std::string(from) != "LD_PRELOAD") return;
    if (!real.empty() && std::find(seen.begin(), seen.end(), real) != seen.end()) return;
    seen.push_back(real);
    Candidate candidate = probe(path);
    candidate.from = from;
    found.push_back(std::move(candidate));
  };
  const auto value = [&](const char* name) { return std::string(env(name) == nullptr ? "" : env(name)); };
  for (const std::string& path : split(value("LD_PRELOAD"), ": "))
    if (path.find("libnccl") != std::string::npos) add(path, "LD_PRELOAD");
  for (const std::string& folder : split(value("LD_LIBRARY_PATH"), ":;")) add(folder + "/" + kFile, "LD_LIBRARY_PATH");
  for (const std::string& line : split(cache, "\n")) {
    const size_t arrow = line.find(" => ");
    if (arrow != std::string::npos && line.find(std::string(kFile) + " ") != std::string::npos) add(line.substr(arrow + 4), "ld.so.cache");
  }
  for (const std::string& folder : packages) add(folder + "/nvidia/nccl/lib/" + kFile, "a Python package");
  return found;
}

int probe(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::printf("%s\n", dlerror());
    return 1;
  }
  const auto version = reinterpret_cast<int (*)(int*)>(dlsym(library, "ncclGetVersion"));
  const auto tutti = reinterpret_cast<const char* (*)()>(dlsym(library, "tuttiVersionString"));
  int number = 0;
  if (version == nullptr || version(&number) != 0) {
    std::printf("%s has no ncclGetVersion that works\n", path.c_str());
    return 1;
  }
  std::printf("probed\nversion %d\n", number);
  if (tutti != nullptr) std::printf("tutti %s\n", tutti());
  for (const auto& mapped : observe::mappedLibraries("libnccl"))
    if (mapped.path == realOf(path)) std::printf("build %s\n", mapped.buildId.c_str());
  return 0;
}

Limits readLimits() {
  Limits limits;
  const auto soft = [](auto resource) {
    rlimit limit{};
    return getrlimit(resource, &limit) == 0 ? static_cast<uint64_t>(limit.rlim_cur) : 0;
  };
  limits.files = soft(RLIMIT_NOFILE);
  limits.fileBytes = soft(RLIMIT_FSIZE);
  limits.lockedBytes = soft(RLIMIT_MEMLOCK);
  constexpr off_t kTried = off_t{16} << 20;
  const UniqueFd memory(memfd_create("tutti-doctor", MFD_CLOEXEC));
  limits.hasMemfd = memory && posix_fallocate(memory.get(), 0, kTried) == 0;
  std::ifstream("/sys/fs/cgroup/memory.max") >> limits.memoryLimit;  // "max" reads as 0
  limits.ptraceScope = -1;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> limits.ptraceScope;
  return limits;
}

int run() {
  std::vector<Finding> findings;
  const auto take = [&](std::vector<Finding> more) { findings.insert(findings.end(), more.begin(), more.end()); };

  std::vector<std::string> packages = split(
      outputOf("python3 -c 'import site, sys, sysconfig; print(\"\\n\".join(dict.fromkeys([sysconfig.get_path(\"purelib\"), "
               "*sys.path, site.getusersitepackages()])))' 2>/dev/null"),
      "\n");
  if (const char* const venv = std::getenv("VIRTUAL_ENV"); venv != nullptr)
    for (std::string& folder : globbed(std::string(venv) + "/lib/python3*/site-packages")) packages.push_back(std::move(folder));
  std::string cache = outputOf("ldconfig -p 2>/dev/null");
  if (cache.empty()) cache = outputOf("/sbin/ldconfig -p 2>/dev/null");

  std::string own = "libnccl.so.2";
  for (const auto& mapped : observe::mappedLibraries("libnccl")) own = mapped.path;
  std::printf("this command's library: %s\n\n", own.c_str());
  take(judgeLibraries(findLibraries([](const char* name) { return std::getenv(name); }, cache, packages, probeApart), own));

  auto api = driver::cuda::openDriver();
  take(judgeGpus(api ? api->get() : nullptr, api ? "" : api.error().text(), exec::cuda::builtRuntime()));
  take(judgeLimits(readLimits()));

  size_t wrong = 0;
  size_t notes = 0;
  for (const Finding& f : findings) {
    const bool isWrong = f.kind == Finding::Kind::Wrong;
    const bool isNote = f.kind == Finding::Kind::Note;
    wrong += isWrong ? 1 : 0;
    notes += isNote ? 1 : 0;
    std::printf("%-5s %s\n", isWrong ? "WRONG" : isNote ? "note" : "ok", f.what.c_str());
    if (!f.remedy.empty()) std::printf("      -> %s\n", f.remedy.c_str());
  }
  std::printf("\n%zu wrong, %zu notes, %zu in order\n", wrong, notes, findings.size() - wrong - notes);
  return wrong == 0 ? 0 : 1;
}

}  // namespace tutti::tool::doctor
