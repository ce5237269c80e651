// Tuners from external libraries: which file NCCL_TUNER_PLUGIN names, what it exports, and one context for each communicator.
//
// Owner: the process, which remembers what it has looked for (Libraries); a communicator owns its tuner, and through it the library. Any
// thread; one at a time uses a tuner.
// 1. "none" names no file; nothing given: libnccl-tuner.so, and then the networks' libraries. That neither is there is no mistake.
// 2. A library that was asked for and cannot be opened, exports no version, or lacks functions, and a tuner whose init fails: one warning
//    in the process, and the library chooses by itself.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/unique_library.h"
#include "tune/plugin/versions.h"
#include "tune/tuner.h"

namespace tutti::tune::plugin {

class Library {
 public:
  /// SystemError when no file can be opened, InvalidUsage when none exports a version up to `newest`.
  static Result<std::shared_ptr<Library>> load(std::string_view name, std::string_view prefix, int newest = 5);

  const Version& version() const { return *version_; }
  const void* raw() const { return raw_; }
  const std::string& tunerName() const { return tunerName_; }

 private:
  Library() = default;
  UniqueLibrary library_;
  const Version* version_ = nullptr;
  const void* raw_ = nullptr;
  std::string tunerName_;
};

/// What a communicator tells its tuner.
struct Communicator {
  uint64_t id = 0;
  int32_t ranks = 1;
  int32_t nodes = 1;
};

/// A tuner of one communicator. Fails when the plugin's init does.
Result<std::shared_ptr<Tuner>> start(std::shared_ptr<Library> library, const Communicator& communicator);

class Libraries {
 public:
  /// `wanted`: NCCL_TUNER_PLUGIN; `networks`: the libraries that NCCL_NET_PLUGIN names, which may hold a tuner too. Null: the library
  /// chooses by itself.
  std::shared_ptr<Tuner> open(const std::string& wanted, const std::vector<std::string>& networks, const Communicator& communicator);

 private:
  std::shared_ptr<Library> find(const std::string& wanted, const std::vector<std::string>& networks);

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Library>> known_;  ///< by NCCL_TUNER_PLUGIN; null: there is none
  bool hasWarned_ = false;
};

}  // namespace tutti::tune::plugin
