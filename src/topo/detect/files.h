// What detection reads of the kernel's files: from below a root, from a recording, or below a root while a recording is made.
//
// Owner: a Sysfs, shared. RootFiles and RecordedFiles: any thread. RecordingFiles: one thread at a time.
// 1. Paths are those of the machine ("/sys/…"), whatever the root. A file that is not there is an absent fact, never an error.
// 2. Of /proc/cpuinfo, and of what a NUMA node says of its memory, nothing is known but the lines that detection understands, so that a
//    recording tells no more than they do.
// 3. A recording answers what was asked when it was made, and nothing else; other questions find nothing.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/status.h"
#include "topo/xml.h"

namespace tutti::topo::detect {

class Files {
 public:
  Files() = default;
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  virtual ~Files() = default;
  /// A whole file, without the line break at its end.
  virtual std::optional<std::string> text(const std::string& path) const = 0;
  /// Where a path leads with all links followed; it exists.
  virtual std::optional<std::string> resolve(const std::string& path) const = 0;
};

class RootFiles final : public Files {
 public:
  explicit RootFiles(std::string root = "/");
  std::optional<std::string> text(const std::string& path) const override;
  std::optional<std::string> resolve(const std::string& path) const override;

 private:
  std::string root_;  // resolved, without a slash at the end
};

/// Answers by path; nullopt: it was asked for and not there.
using Answers = std::map<std::string, std::optional<std::string>>;

class RecordedFiles final : public Files {
 public:
  RecordedFiles(Answers texts, Answers links) : texts_(std::move(texts)), links_(std::move(links)) {}
  std::optional<std::string> text(const std::string& path) const override { return answer(texts_, path); }
  std::optional<std::string> resolve(const std::string& path) const override { return answer(links_, path); }

 private:
  static std::optional<std::string> answer(const Answers& answers, const std::string& path);
  const Answers texts_;
  const Answers links_;
};

class RecordingFiles final : public Files {
 public:
  explicit RecordingFiles(std::shared_ptr<const Files> files) : files_(std::move(files)) {}
  std::optional<std::string> text(const std::string& path) const override;
  std::optional<std::string> resolve(const std::string& path) const override;
  const Answers& texts() const { return texts_; }
  const Answers& links() const { return links_; }

 private:
  const std::shared_ptr<const Files> files_;
  mutable Answers texts_;
  mutable Answers links_;
};

}  // namespace tutti::topo::detect
