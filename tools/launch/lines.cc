#include "launch/lines.h"

#include "core/format.h"

namespace tutti::launch {

void LineCutter::emit(std::string_view rest, std::string& out) {
  out += prefix_;
  out += begun_;
  out += rest;
  out += '\n';
  begun_.clear();
}

void LineCutter::feed(std::string_view bytes, std::string& out) {
  for (;;) {
    const size_t end = bytes.find('\n');
    const std::string_view line = bytes.substr(0, end);
    if (begun_.size() + line.size() > kLongestLine) {
      const size_t room = kLongestLine - begun_.size();
      emit(line.substr(0, room), out);
      bytes.remove_prefix(room);
      continue;
    }
    if (end == std::string_view::npos) break;
    emit(line, out);
    bytes.remove_prefix(end + 1);
  }
  begun_ += bytes;
}

void LineCutter::finish(std::string& out) {
  if (!begun_.empty()) emit({}, out);
}

std::string rankPrefix(int rank, int ranks) { return format("[{:>{}}] ", rank, format("{}", ranks - 1).size()); }

}  // namespace tutti::launch
