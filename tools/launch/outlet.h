// The way out to standard output or standard error: takes text at any time, writes what there is room for, never blocks.
//
// One thread. The descriptor may be shared with other processes, so its flags are left alone: it is asked before each small write.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::launch {

class Outlet {
 public:
  explicit Outlet(int descriptor) : descriptor_(descriptor) {}

  int descriptor() const { return descriptor_; }
  /// Where lines are appended; flush() takes them from there.
  std::string& text() { return text_; }
  bool isEmpty() const { return text_.empty(); }
  /// Enough is waiting: whoever brings more should wait too.
  bool isFull() const { return text_.size() >= kFull; }
  /// The reader has gone: nothing is written any more.
  bool isBroken() const { return isBroken_; }
  void flush();

 private:
  static constexpr size_t kFull = size_t{1} << 18;

  int descriptor_;
  std::string text_;
  bool isBroken_ = false;
};

}  // namespace tutti::launch
