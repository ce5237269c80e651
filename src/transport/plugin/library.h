// External libraries that may hold a network: which files NCCL_NET_PLUGIN names, and what they export.
//
// Owner: shared by the networks made from it; one that has been initialised is the process's, for good: threads of its own may run its
// code, and versions before 11 have nothing that ends them. Any thread.
// 1. A value is tried as plugin/loader.h says: as it is given, then as libnccl-net-<value>.so.
// 2. "none" names no file, "STATIC_PLUGIN" the program itself; nothing given: libnccl-net.so. At most kMostNames of a list count.
// 3. Of several versions the newest is taken.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/unique_library.h"
#include "transport/plugin/versions.h"

namespace tutti::transport::plugin {

inline constexpr size_t kMostNames = 14;

/// The names of the list, in order; empty when external plugins are off.
std::vector<std::string> pluginNames(std::string_view list);
class Library : public std::enable_shared_from_this<Library> {
 public:
  /// The one that has been initialised, if there is one. SystemError when no file can be opened, InvalidUsage when none exports a
  /// version up to `newest`.
  static Result<std::shared_ptr<Library>> load(std::string_view name, int newest = 11);

  /// No library has been initialised; there is no network any more.
  static void forgetForTest();

  const Version& version() const { return *version_; }
  const void* raw() const { return raw_; }
  /// The network's own name.
  const std::string& networkName() const { return networkName_; }
  /// Calls init as often as its version wants: for each context, or once. `context` gets what the plugin returns.
  Status init(const net::Use& use, void** context);

 private:
  Library() = default;

  UniqueLibrary library_;
  const Version* version_ = nullptr;
  const void* raw_ = nullptr;
  std::string networkName_;
  std::mutex mutex_;  ///< protects what follows
  bool initialised_ = false;
};

/// What a plugin's result code says; Ok for 0.
Status statusOf(int code, std::string_view plugin, std::string_view what);

}  // namespace tutti::transport::plugin
