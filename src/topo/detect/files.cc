#include "topo/detect/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <string_view>

#include "core/unique_fd.h"

namespace tutti::topo::detect {
namespace {

constexpr size_t kMostText = 1U << 20;
constexpr std::string_view kCpuInfo = "/proc/cpuinfo";
constexpr std::string_view kMemInfo = "/meminfo";

/// The first line of each name that says what CPU it is.
std::string cpuLines(std::string_view info) {
  std::string kept;
  std::string_view names[] = {"vendor_id", "cpu family", "model", "CPU implementer", "cpu"};
  while (!info.empty()) {
    const std::string_view line = info.substr(0, info.find('\n'));
    info.remove_prefix(std::min(line.size() + 1, info.size()));
    std::string_view name = line.substr(0, line.find(':'));
    name = name.substr(0, name.find_last_not_of(" \t") + 1);
    const auto known = std::find(std::begin(names), std::end(names), name);
    if (name.empty() || known == std::end(names)) continue;
    *known = {};
    if (!kept.empty()) kept += '\n';
    kept += line;
  }
  return kept;
}

/// Of a NUMA node's meminfo: how much memory there is, not what it is used for.
std::string totalMemory(std::string_view info) {
  const size_t found = info.find("MemTotal:");
  if (found == std::string_view::npos) return {};
  const std::string_view line = info.substr(found, info.find('\n', found) - found);
  return std::string(line);
}

}  // namespace

RootFiles::RootFiles(std::string root) : root_(std::move(root)) {
  while (root_.ends_with('/')) root_.pop_back();
  char resolved[PATH_MAX];
  if (!root_.empty() && realpath(root_.c_str(), resolved) != nullptr) root_ = resolved;
}

std::optional<std::string> RootFiles::text(const std::string& path) const {
  const UniqueFd file(open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::string all;
  char block[4096];
  while (all.size() < kMostText) {
    const ssize_t got = ::read(file.get(), block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    all.append(block, static_cast<size_t>(got));
  }
  while (!all.empty() && (all.back() == '\n' || all.back() == ' ')) all.pop_back();
  if (path == kCpuInfo) return cpuLines(all);
  return path.ends_with(kMemInfo) ? totalMemory(all) : all;
}

std::optional<std::string> RootFiles::resolve(const std::string& path) const {
  char resolved[PATH_MAX];
  if (realpath((root_ + path).c_str(), resolved) == nullptr) return std::nullopt;
  const std::string_view whole = resolved;
  if (!whole.starts_with(root_)) return std::nullopt;  // a link that leads out of a recorded tree
  return std::string(whole.substr(root_.size()));
}

std::optional<std::string> RecordedFiles::answer(const Answers& answers, const std::string& path) {
  const auto found = answers.find(path);
  return found == answers.end() ? std::nullopt : found->second;
}

std::optional<std::string> RecordingFiles::text(const std::string& path) const { return texts_[path] = files_->text(path); }

std::optional<std::string> RecordingFiles::resolve(const std::string& path) const { return links_[path] = files_->resolve(path); }

}  // namespace tutti::topo::detect
