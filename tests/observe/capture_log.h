// What the library logs while this lives, as text. One at a time.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "observe/log.h"

namespace tutti::observe::play {

class CaptureLog {
 public:
  /// `level`: as NCCL_DEBUG has it.
  explicit CaptureLog(const char* level = "WARN") {
    static int number = 0;  // a file that stays the same is not opened again
    path_ = testing::TempDir() + "tutti_log_" + std::to_string(getpid()) + "_" + std::to_string(++number);
    setenv("NCCL_DEBUG", level, 1);
    setenv("NCCL_DEBUG_FILE", path_.c_str(), 1);
    resetLog();
  }
  CaptureLog(const CaptureLog&) = delete;
  CaptureLog& operator=(const CaptureLog&) = delete;
  ~CaptureLog() {
    unsetenv("NCCL_DEBUG");
    unsetenv("NCCL_DEBUG_FILE");
    resetLog();
    unlink(path_.c_str());
  }
  std::string text() const {
    std::ifstream file(path_);
    return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  size_t count(const std::string& part) const {
    const std::string all = text();
    size_t found = 0;
    for (size_t at = all.find(part); at != std::string::npos; at = all.find(part, at + 1)) ++found;
    return found;
  }

 private:
  std::string path_;
};

}  // namespace tutti::observe::play
