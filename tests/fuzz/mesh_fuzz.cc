// What a mesh takes from connections that have proved themselves: of six processes on three hosts one is here, and the input is what comes
// on its connections (frames that were sealed, bytes that nobody sealed, the end), and what its user does meanwhile.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "bootstrap/core.h"
#include "bootstrap/mesh_core.h"
#include "bootstrap/tree.h"
#include "bootstrap/wire.h"
#include "fuzz/some_hosts.h"
#include "fuzz/target.h"

namespace tutti::fuzz {
namespace {

using namespace bootstrap;

const std::vector<int32_t> kHostOf = {0, 1, 0, 0, 2, 0};
constexpr int32_t kProcesses = 6;
constexpr size_t kConnections = 4;
constexpr size_t kMostEarlyBytes = 200;  // after a few messages nothing is read
constexpr Secret kToMesh{1};
constexpr Secret kFromMesh{2};

/// What happens, each with a number and bytes; what is to lie together when it is read waits for the next.
enum class Event : uint8_t { Frame, Noise, End, Listen, Gather, Send, Tell, Trouble, Close };
constexpr unsigned kEvents = 9;
constexpr uint8_t kWaits = 0x80;

/// The other end of a connection.
class Other {
 public:
  Other(Reactor& reactor, size_t number) {
    std::array<int, 2> ends{};
    promise(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0, "there are descriptors");
    end_.reset(ends[1]);
    Socket socket(reactor.loop());
    socket.assign(asio::generic::stream_protocol(AF_UNIX, 0), ends[0]);
    link = std::make_shared<Link>(reactor, std::move(socket), SessionKeys{kFromMesh, kToMesh}, "connection " + std::to_string(number));
  }

  void queue(std::span<const std::byte> bytes) { waiting_.insert(waiting_.end(), bytes.begin(), bytes.end()); }
  void queue(Kind kind, std::span<const std::byte> payload) { queue(sealer_.seal(static_cast<uint8_t>(kind), payload)); }
  /// Whether any of it went.
  bool flush() {
    const ssize_t sent = waiting_.empty() ? 0 : ::send(end_.get(), waiting_.data(), waiting_.size(), MSG_NOSIGNAL);
    if (sent < 0) waiting_.clear();  // the mesh has closed it
    if (sent > 0) waiting_.erase(waiting_.begin(), waiting_.begin() + sent);
    return sent > 0;
  }
  void hangUp() { (void)shutdown(end_.get(), SHUT_WR); }
  /// What the mesh has said here is checked; its bytes.
  size_t hear() {
    size_t bytes = 0;
    std::array<std::byte, 4096> room;
    for (ssize_t got = 0; (got = ::recv(end_.get(), room.data(), room.size(), 0)) > 0;) {
      heard_.insert(heard_.end(), room.begin(), room.begin() + got);
      bytes += static_cast<size_t>(got);
    }
    while (heard_.size() >= kLengthBytes) {
      const auto length = Opener::lengthOf(std::span(heard_).first<kLengthBytes>());
      promise(length.has_value(), "a mesh's frame has a length");
      if (heard_.size() < kLengthBytes + *length) break;
      const auto frame = opener_.open(std::span(heard_).subspan(kLengthBytes, *length));
      promise(frame && frame->kind >= static_cast<uint8_t>(Kind::Intro) && frame->kind <= static_cast<uint8_t>(Kind::Bye),
              "a mesh says what a mesh may say");
      heard_.erase(heard_.begin(), heard_.begin() + static_cast<std::ptrdiff_t>(kLengthBytes + *length));
    }
    return bytes;
  }

  std::shared_ptr<Link> link;
  std::optional<int32_t> speaker;  ///< as its first frame, or the tree, says
  bool hasSpoken = false;
  bool isOver = false;  ///< it has ended, or will: what came cannot be read

 private:
  UniqueFd end_;
  std::vector<std::byte> waiting_;
  std::vector<std::byte> heard_;
  Sealer sealer_{kToMesh};
  Opener opener_{kFromMesh};
};

class Scene {
 public:
  Scene(const std::shared_ptr<Core>& core, int32_t self, bool hasParent)
      : core_(core),
        membership_(someHosts(kHostOf, self)),
        mesh_(std::make_shared<MeshCore>(core, membership_, Secret{3}, nullptr, kMostEarlyBytes)) {
    if (!hasParent || self == 0) return;
    others_[0] = std::make_unique<Other>(core->reactor, 0);
    others_[0]->hasSpoken = true;
    others_[0]->speaker = treeParent(membership_, self);
    mesh_->adoptParent(others_[0]->link);
  }

  void happen(uint8_t what, uint8_t number, std::span<const std::byte> bytes) {
    const auto event = static_cast<Event>((what & ~kWaits) % kEvents);
    const int32_t process = number % kProcesses;
    switch (event) {
      case Event::Frame: frame(other(number), bytes); break;
      case Event::Noise: noise(other(number), bytes); break;
      case Event::End: end(other(number)); break;
      case Event::Listen: listen(); break;
      case Event::Gather: exchanges_.push_back(mesh_->allGather(bytes, std::chrono::hours(1))); break;
      case Event::Send: (void)mesh_->send(process, bytes); break;
      case Event::Tell: (void)mesh_->tell(process, bytes); break;
      case Event::Trouble: hasTrouble_ = true, mesh_->announceTrouble(error(Code::RemoteError, "trouble")); break;
      case Event::Close: isClosed_ = true, mesh_->close(); break;
    }
    if ((what & kWaits) == 0) goOn();
  }

  /// Returns what the mesh has said, in bytes.
  size_t finish() {
    listen();
    goOn();
    checkWhatIsTold();
    mesh_->close();
    goOn();
    for (const auto& exchange : exchanges_) {
      const auto outcome = exchange->poll();
      promise(outcome.has_value(), "with the mesh its all-gathers end");
      if (*outcome)
        promise((**outcome)->size() == kProcesses, "there is a part of everybody");
      else
        promise(!outcome->error().text().empty(), "an error has words");
    }
    return said_;
  }

 private:
  Other& other(size_t number) {
    auto& one = others_[number % kConnections];
    if (one != nullptr) return *one;
    one = std::make_unique<Other>(core_->reactor, number % kConnections);
    mesh_->welcome(one->link);
    return *one;
  }
  void frame(Other& from, std::span<const std::byte> bytes) {
    if (from.isOver) return;
    const auto kind = bytes.empty() ? Kind::Data : static_cast<Kind>(bytes[0]);
    const auto payload = bytes.subspan(bytes.empty() ? 0 : 1);
    from.queue(kind, payload);
    Reader reader(payload);
    const auto speaker = reader.number<int32_t>();
    if (!std::exchange(from.hasSpoken, true) && kind == Kind::Intro && reader.atEnd() && speaker >= 0 && speaker < kProcesses &&
        speaker != membership_.ownProcess)
      from.speaker = speaker;
    hasBye_ = hasBye_ || kind == Kind::Bye;
    if (kind == Kind::Data && from.speaker) ++sent_;
  }
  void noise(Other& from, std::span<const std::byte> bytes) {
    if (from.isOver || bytes.empty()) return;
    from.queue(bytes);
    from.hasSpoken = true;
    hasNoise_ = true;
  }
  void end(Other& from) {
    goOn();
    from.hangUp();
    from.isOver = true;
  }
  void listen() {
    if (std::exchange(listens_, true)) return;
    mesh_->setHandlers(
        [this](int32_t process, std::span<const std::byte>) {
          promise(std::ranges::any_of(others_, [&](const auto& other) { return other && other->speaker == process; }),
                  "who has said something is there");
          ++heard_;
        },
        [this](int32_t process, const Status& cause) {
          promise(process >= 0 && process < kProcesses && process != membership_.ownProcess, "another process is lost");
          promise(!cause.text().empty(), "a loss has words");
          promise(lost_.insert(process).second, "a loss is told once");
        });
  }
  /// Until nothing moves any more.
  void goOn() {
    for (bool moves = true; moves;) {
      core_->reactor.loop().restart();
      moves = core_->reactor.loop().poll() > 0;
      for (const auto& one : others_) {
        if (one == nullptr) continue;
        moves = one->flush() || moves;
        said_ += one->hear();
      }
    }
  }
  void checkWhatIsTold() const {
    if (hasTrouble_ || isClosed_ || hasBye_) return;
    if (!hasNoise_ && lost_.empty()) promise(heard_ == sent_, "who listens hears all messages");
    for (const auto& one : others_)
      if (one && one->isOver && one->speaker) promise(lost_.contains(*one->speaker), "who ends without a goodbye is lost");
  }

  const std::shared_ptr<Core> core_;
  const Membership membership_;
  const std::shared_ptr<MeshCore> mesh_;
  std::array<std::unique_ptr<Other>, kConnections> others_;
  std::vector<std::shared_ptr<Exchange>> exchanges_;
  std::set<int32_t> lost_;
  size_t said_ = 0;
  bool listens_ = false;
  bool hasTrouble_ = false;
  bool isClosed_ = false;
  bool hasBye_ = false;
  bool hasNoise_ = false;
  size_t sent_ = 0;   // messages to the mesh's user
  size_t heard_ = 0;  // of them, by it
};

void play(const std::shared_ptr<Core>& core, std::span<const std::byte> bytes) {
  const auto how = std::to_integer<unsigned>(bytes[0]);
  Scene scene(core, static_cast<int32_t>(how / 2 % kProcesses), how % 2 != 0);
  bytes = bytes.subspan(1);
  size_t heard = 0;
  size_t events = 0;
  for (; bytes.size() >= 4; ++events) {
    const size_t size = std::to_integer<size_t>(bytes[2]) | std::to_integer<size_t>(bytes[3]) << 8;
    const auto body = bytes.subspan(4, std::min(size, bytes.size() - 4));
    scene.happen(std::to_integer<uint8_t>(bytes[0]), std::to_integer<uint8_t>(bytes[1]), body);
    bytes = bytes.subspan(4 + body.size());
    heard += body.size();
  }
  promise(scene.finish() <= 16 * heard + 2048 * (events + 4), "what is said is in proportion to what came");
}

}  // namespace

void run(std::string_view input) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(input));
  static const bool isReady = prepareCrypto().ok();
  promise(isReady, "there is a library of cryptography");
  if (bytes.empty()) return;
  const auto core = std::make_shared<Core>(World(), Status());
  promise(core->reactor
              .runHere(
                  [&] {
                    play(core, bytes);
                    core->reactor.leave();
                  },
                  std::chrono::seconds(1))
              .ok(),
          "there are descriptors");
}

namespace {

/// An input, as text.
class Script {
 public:
  Script(int32_t self, bool hasParent) : text_(1, static_cast<char>(2 * self + (hasParent ? 1 : 0))) {}
  Script& add(Event event, uint8_t number, std::span<const std::byte> bytes = {}, bool waits = false) {
    for (const size_t byte : {static_cast<size_t>(event) | (waits ? kWaits : 0U), size_t{number}, bytes.size(), bytes.size() >> 8})
      text_ += static_cast<char>(byte);
    text_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return *this;
  }
  Script& frame(uint8_t connection, Kind kind, std::span<const std::byte> payload, bool waits = false) {
    std::vector<std::byte> bytes = {static_cast<std::byte>(kind)};
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    return add(Event::Frame, connection, bytes, waits);
  }
  Script& intro(uint8_t connection, int32_t process, bool waits = false) {
    Writer writer;
    writer.number(process);
    return frame(connection, Kind::Intro, writer.view(), waits);
  }
  Script& bye(uint8_t connection, bool isLast, bool waits = false) {
    return frame(connection, Kind::Bye, std::array{static_cast<std::byte>(isLast)}, waits);
  }
  Script& loss(uint8_t connection, int32_t process) {
    Writer writer;
    writer.number(process);
    writer.raw(encode(error(Code::RemoteError, "it is gone")));
    return frame(connection, Kind::Loss, writer.view());
  }
  /// What process `from` has for the first all-gather, where all give nothing: parts of `of`.
  Script& round(uint8_t connection, uint8_t phase, uint8_t number, const std::vector<int32_t>& of) {
    Writer writer;
    writer.number(uint64_t{0});
    writer.number(phase);
    writer.number(number);
    writer.number(static_cast<uint32_t>(of.size()));
    for (const int32_t part : of) writer.number(part), writer.blob({});
    return frame(connection, Kind::Round, writer.view());
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  const std::vector<std::byte> some(60);
  const auto add = [&all](const Script& script) { all.push_back(script.text()); };
  // The first process of the first host, which all rounds go through.
  add(Script(0, false)
          .intro(0, 2)
          .intro(1, 3)
          .intro(2, 1)
          .intro(3, 4)
          .add(Event::Gather, 0)
          .round(0, 0, 0, {2})
          .round(1, 0, 0, {3, 5})
          .round(2, 1, 0, {1})
          .round(3, 1, 1, {4}));
  add(Script(2, true).add(Event::Gather, 0).round(0, 2, 0, {0, 1, 2, 3, 4, 5}).add(Event::Listen, 0).add(Event::Send, 0, some));
  for (const bool hasParent : {false, true}) {
    Script messages(3, hasParent);
    messages.intro(1, 1).frame(1, Kind::Data, some).add(Event::Send, 1, some).add(Event::Tell, 2, some);
    add(messages);
    add(Script(messages)
            .frame(1, Kind::Data, some)
            .frame(1, Kind::Data, some)
            .frame(1, Kind::Data, {})
            .add(Event::Listen, 0)
            .add(Event::End, 1));
    add(Script(messages).add(Event::Trouble, 0).add(Event::Send, 5, some));
    add(Script(messages).add(Event::Close, 0).frame(1, Kind::Data, some));
    for (const bool isLast : {false, true})
      add(Script(messages).intro(2, 1).bye(1, isLast).frame(2, Kind::Data, some).add(Event::Send, 1, some));
    add(Script(messages).add(Event::Noise, 1, some));
    for (const int32_t lost : {1, 3, 4, 9}) add(Script(messages).loss(1, lost).intro(2, 4).add(Event::End, 2));
    add(Script(messages).frame(2, Kind::Data, some).intro(3, 3));
  }
  // Nothing is read, several connections of a process have something, and the first of them says that it was the last word.
  Script early(0, false);
  for (uint8_t connection = 0; connection < kConnections; ++connection) early.intro(connection, 1);
  for (int i = 0; i < 5; ++i) early.frame(0, Kind::Data, some);
  for (uint8_t connection = 1; connection < kConnections; ++connection) early.bye(connection, true);
  add(early.add(Event::Listen, 0));
  // One connection brings several frames at once, also with the first.
  add(Script(0, false)
          .intro(0, 1, true)
          .frame(0, Kind::Data, some, true)
          .frame(0, Kind::Data, some, true)
          .frame(0, Kind::Data, some, true)
          .frame(0, Kind::Data, some, true)
          .frame(0, Kind::Data, some)
          .add(Event::Listen, 0));
  // What comes together with a first frame that introduces nobody counts for nothing.
  add(Script(0, false).frame(0, Kind::Data, some, true).intro(0, 2, true).frame(0, Kind::Data, some).add(Event::Listen, 0));
  Script together(0, false);
  together.intro(0, 1);
  for (int i = 0; i < 8; ++i) together.frame(0, Kind::Data, some, true);
  add(together.frame(0, Kind::Data, {}).add(Event::Listen, 0).bye(0, true, true).frame(0, Kind::Data, some));
  return all;
}

}  // namespace tutti::fuzz
