#include "memory/device_budget.h"

#include "core/format.h"

namespace tutti::memory {

std::string_view name(Purpose purpose) {
  switch (purpose) {
    case Purpose::Pipes: return "pipes";
    case Purpose::Windows: return "windows";
    case Purpose::Boards: return "boards";
    case Purpose::Kernels: return "kernels";
    case Purpose::Idle: return "idle";
    case Purpose::User: return "user";
  }
  return "?";
}

Bytes Usage::limited() const {
  Bytes sum;
  for (size_t i = 0; i < kNumPurposes; ++i)
    if (static_cast<Purpose>(i) != Purpose::User) sum += bytes[i];
  return sum;
}

std::string Usage::text() const {
  std::string text;
  for (size_t i = 0; i < kNumPurposes; ++i) {
    if (bytes[i].value != 0) text += format("{}{} {}", text.empty() ? "" : ", ", name(static_cast<Purpose>(i)), bytes[i].value);
  }
  return text.empty() ? "nothing" : text + " bytes";
}

Status Budget::charge(Purpose purpose, Bytes bytes, Purpose wanted) {
  const std::lock_guard lock(mutex_);
  Bytes& used = usage_.bytes[static_cast<size_t>(purpose)];
  if (purpose != Purpose::User && usage_.budget.value != 0) {
    const Bytes before = usage_.limited();  // at most the budget
    if (bytes > usage_.budget - before)
      return error(Code::UnhandledCudaError, "device {}: {} bytes for {} go past the budget of {} bytes (TUTTI_MEM_LIMIT); in use: {}",
                   device_, bytes.value, name(wanted), usage_.budget.value, usage_.text());
  }
  used += bytes;
  return {};
}

void Budget::credit(Purpose purpose, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  Bytes& used = usage_.bytes[static_cast<size_t>(purpose)];
  used = used - bytes;
}

void Budget::move(Purpose from, Purpose to, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  usage_.bytes[static_cast<size_t>(from)] = usage_.of(from) - bytes;
  usage_.bytes[static_cast<size_t>(to)] += bytes;
}

Usage Budget::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

}  // namespace tutti::memory
