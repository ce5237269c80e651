#include "launch/by_pmi.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace tutti::launch {
namespace {

constexpr std::string_view kKey = "tutti-unique-id";
constexpr size_t kMostLine = 4096;

/// One side of the conversation: a line out, a line in.
class Conversation {
 public:
  Conversation(int descriptor, Deadline deadline) : descriptor_(descriptor), deadline_(deadline) {}

  /// Sends `line`; the answer must be the command `expected`, with a return code of 0 where it has one.
  Result<std::string> ask(std::string_view line, std::string_view expected) {
    if (Status status = write(format("{}\n", line)); !status.ok()) return tl::unexpected(std::move(status));
    Result<std::string> answer = read(line);
    if (!answer) return answer;
    const std::string_view code = pmiValue(*answer, "rc");
    if (pmiValue(*answer, "cmd") == expected && (code.empty() || code == "0")) return answer;
    return fail(Code::RemoteError, "the launcher answers '{}' with '{}'", line, *answer);
  }

 private:
  Status write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return hasEnded(text.substr(0, text.find('\n')), std::strerror(errno));
      text.remove_prefix(static_cast<size_t>(written));
    }
    return {};
  }

  Result<std::string> read(std::string_view question) {
    for (;;) {
      if (const size_t end = pending_.find('\n'); end != std::string::npos) {
        std::string line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        return line;
      }
      pollfd ready = {descriptor_, POLLIN, 0};
      const int count = poll(&ready, 1, deadline_.pollMs());
      if (count == 0) return fail(Code::RemoteError, "the launcher has not answered '{}' in time: has every rank started?", question);
      char part[512];
      const ssize_t received = count < 0 ? -1 : recv(descriptor_, part, sizeof part, 0);
      if (received < 0 && errno == EINTR) continue;
      if (received <= 0) return tl::unexpected(hasEnded(question, received < 0 ? std::strerror(errno) : "it is closed"));
      if (pending_.size() > kMostLine) return fail(Code::RemoteError, "the launcher answers '{}' with an endless line", question);
      pending_.append(part, static_cast<size_t>(received));
    }
  }

  /// A second program on the same descriptor sees this at its first line: at the writing or at the reading, as the launcher closes.
  Status hasEnded(std::string_view line, std::string_view why) const {
    return error(Code::RemoteError,
                 "the launcher ended the conversation at '{}' (PMI_FD={}: {}); it speaks PMI once with each process that it starts: "
                 "with several programs one after another, set NCCL_COMM_ID",
                 line, descriptor_, why);
  }

  int descriptor_;
  Deadline deadline_;
  std::string pending_;
};

Result<ncclUniqueId> converse(Conversation& pmi, const Standing& standing, const MakeId& makeId) {
  Result<std::string> answer = pmi.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
  if (answer) answer = pmi.ask("cmd=get_my_kvsname", "my_kvsname");
  if (!answer) return tl::unexpected(std::move(answer).error());
  const std::string space(pmiValue(*answer, "kvsname"));
  Result<ncclUniqueId> id = ncclUniqueId{};
  if (standing.rank == 0) {
    id = makeId();
    if (!id) return id;
    answer = pmi.ask(format("cmd=put kvsname={} key={} value={}", space, kKey, toHex(*id)), "put_result");
  }
  if (answer) answer = pmi.ask("cmd=barrier_in", "barrier_out");
  if (answer && standing.rank != 0) {
    answer = pmi.ask(format("cmd=get kvsname={} key={}", space, kKey), "get_result");
    if (answer) id = fromHex(pmiValue(*answer, "value"));
  }
  if (answer && id) answer = pmi.ask("cmd=finalize", "finalize_ack");
  if (!answer) return tl::unexpected(std::move(answer).error());
  return id;
}

}  // namespace

std::string toHex(const ncclUniqueId& id) {
  std::string text;
  for (const char byte : id.internal) text += format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

Result<ncclUniqueId> fromHex(std::string_view text) {
  ncclUniqueId id;
  bool isHex = text.size() == 2 * sizeof id.internal;
  for (size_t i = 0; isHex && i < sizeof id.internal; ++i) {
    unsigned byte = 0;
    const char* first = text.data() + 2 * i;
    const auto [end, problem] = std::from_chars(first, first + 2, byte, 16);
    isHex = problem == std::errc() && end == first + 2;
    id.internal[i] = static_cast<char>(byte);
  }
  if (!isHex) return fail(Code::RemoteError, "what the launcher keeps as the unique id has {} characters and is none", text.size());
  return id;
}

std::string_view pmiValue(std::string_view line, std::string_view key) {
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), word.size() + 1));
    if (word.size() > key.size() && word.starts_with(key) && word[key.size()] == '=') return word.substr(key.size() + 1);
  }
  return {};
}

Result<ncclUniqueId> exchangeByPmi(const Standing& standing, const MakeId& makeId, Deadline deadline) {
  Conversation pmi(standing.descriptor, deadline);
  Result<ncclUniqueId> id = converse(pmi, standing, makeId);
  if (!id) return tl::unexpected(std::move(id).error().at("exchange of the unique id through PMI"));
  return id;
}

}  // namespace tutti::launch
