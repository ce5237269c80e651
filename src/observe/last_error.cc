#include "observe/last_error.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace tutti::observe {

void LastError::set(std::string_view text) {
  const size_t bytes = std::min(text.size(), kBytes - 1);
  std::lock_guard lock(mutex_);
  std::memcpy(current_.data(), text.data(), bytes);
  current_[bytes] = '\0';
  ++written_;
}

const char* LastError::read() {
  std::lock_guard lock(mutex_);
  if (written_ == 0) return "";
  Text* newest = slotsUsed_ ? slots_[(slotsUsed_ - 1) % kSlots] : nullptr;
  if (newest && published_ == written_) return newest->data();
  published_ = written_;
  if (newest && std::strcmp(newest->data(), current_.data()) == 0) return newest->data();
  Text*& slot = slots_[slotsUsed_ % kSlots];
  if (!slot) slot = new (std::nothrow) Text;
  if (!slot) return newest ? newest->data() : "out of memory";
  std::memcpy(slot->data(), current_.data(), std::strlen(current_.data()) + 1);
  ++slotsUsed_;
  return slot->data();
}

}  // namespace tutti::observe
