// Cuts what a process writes into whole lines, so that the lines of many processes can go to one place without tearing each other.
//
// One thread. A line longer than kLongestLine, which no program means to be one, is cut there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::launch {

inline constexpr size_t kLongestLine = size_t{1} << 20;

class LineCutter {
 public:
  /// `prefix` goes before each line.
  explicit LineCutter(std::string prefix) : prefix_(std::move(prefix)) {}

  /// Appends the lines that `bytes` completes to `out`.
  void feed(std::string_view bytes, std::string& out);
  /// The process has closed its end: a line without an end gets one.
  void finish(std::string& out);

 private:
  void emit(std::string_view rest, std::string& out);

  std::string prefix_;
  std::string begun_;
};

/// "[ 3] " where the largest rank has two digits.
std::string rankPrefix(int rank, int ranks);

}  // namespace tutti::launch
