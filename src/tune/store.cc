#include "tune/store.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/hash.h"

namespace tutti::tune {
namespace {

constexpr size_t kMostBytes = 1 << 20;

struct CloseFile {
  void operator()(FILE* file) const noexcept { (void)std::fclose(file); }
};
using File = std::unique_ptr<FILE, CloseFile>;

/// What it holds, up to kMostBytes + 1; nothing when it cannot be opened, with errno.
std::optional<std::string> contentOf(const std::string& path) {
  const File file(std::fopen(path.c_str(), "re"));
  if (!file) return std::nullopt;
  std::string text(kMostBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return std::nullopt;
  return text;
}

std::string processorModel() {
  utsname names{};
  std::string model = uname(&names) == 0 ? names.machine : "";
#if defined(__x86_64__)
  unsigned words[12] = {};
  unsigned highest = 0;
  unsigned unused[3];
  if (__get_cpuid(0x80000000, &highest, unused, unused + 1, unused + 2) != 0 && highest >= 0x80000004) {
    for (size_t i = 0; i < 3; ++i)
      (void)__get_cpuid(0x80000002 + static_cast<unsigned>(i), words + 4 * i, words + 4 * i + 1, words + 4 * i + 2, words + 4 * i + 3);
    model.append(reinterpret_cast<const char*>(words), strnlen(reinterpret_cast<const char*>(words), sizeof words));
  }
#endif
  return model;
}

/// "Model: …" of every GPU that NVIDIA's driver lists.
std::vector<std::string> gpuModels() {
  std::vector<std::string> models;
  const std::string folder = "/proc/driver/nvidia/gpus";
  DIR* const opened = opendir(folder.c_str());
  if (opened == nullptr) return models;
  while (const dirent* entry = readdir(opened)) {
    if (entry->d_name[0] == '.') continue;
    const std::string text = contentOf(folder + "/" + entry->d_name + "/information").value_or("");
    models.push_back(text.substr(0, text.find('\n')));
  }
  closedir(opened);
  std::sort(models.begin(), models.end());
  return models;
}

Status makeFolders(const std::string& folder) {
  for (size_t at = folder.find('/', 1);; at = folder.find('/', at + 1)) {
    const std::string part = folder.substr(0, at);
    if (mkdir(part.c_str(), 0755) != 0 && errno != EEXIST)
      return error(Code::SystemError, "{}: cannot be made: {}", part, std::strerror(errno));
    if (at == std::string::npos) return {};
  }
}

}  // namespace

std::string machineKey() {
  std::string facts = processorModel();
  const auto add = [&](const std::string& fact) { facts.append(1, '|').append(fact); };
  for (const char* path : {"/sys/devices/system/cpu/present", "/sys/devices/system/node/possible"}) add(contentOf(path).value_or(""));
  for (const std::string& model : gpuModels()) add(model);
  return format("{:016x}", hashText(facts));
}

int32_t listedGpus() { return static_cast<int32_t>(gpuModels().size()); }

std::string cacheFolder(const std::string& tuttiDir) {
  if (!tuttiDir.empty()) return tuttiDir;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') return std::string(cache) + "/tutti";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') return std::string(home) + "/.cache/tutti";
  return {};
}

std::string storedPath(const std::string& folder, const std::string& key) { return format("{}/tune-{}.json", folder, key); }

Result<std::optional<Platform>> readStored(const std::string& folder, const std::string& key) {
  const std::string path = storedPath(folder, key);
  const auto text = contentOf(path);
  if (!text) {
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<Platform>();
    return fail(Code::SystemError, "{}: cannot be read: {}", path, std::strerror(errno));
  }
  if (text->size() > kMostBytes) return fail(Code::InvalidUsage, "{}: has more than {} bytes", path, kMostBytes);
  auto platform = parsePlatform(path, *text);
  if (!platform) return tl::unexpected(std::move(platform).error());
  if (platform->key != key) return fail(Code::InvalidUsage, "{}: is of machine '{}', expected '{}'", path, platform->key, key);
  return std::optional<Platform>(std::move(*platform));
}

Status writeStored(const std::string& folder, const Platform& platform) {
  TUTTI_TRY(makeFolders(folder));
  const std::string path = storedPath(folder, platform.key);
  const std::string part = format("{}.{}", path, getpid());
  const std::string text = toText(platform);
  {
    const File file(std::fopen(part.c_str(), "wex"));
    if (!file || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() || std::fflush(file.get()) != 0) {
      const Status status = error(Code::SystemError, "{}: cannot be written: {}", part, std::strerror(errno));
      if (file) (void)unlink(part.c_str());
      return status;
    }
  }
  if (std::rename(part.c_str(), path.c_str()) == 0) return {};
  const Status status = error(Code::SystemError, "{}: cannot be replaced: {}", path, std::strerror(errno));
  (void)unlink(part.c_str());
  return status;
}

uint32_t digestOf(const Platform& platform) {
  const uint64_t whole = hashText(toText(platform));
  return static_cast<uint32_t>(whole ^ whole >> 32) | 1;
}

}  // namespace tutti::tune
