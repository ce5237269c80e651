// What a receiver of sockets takes from an established connection. The input is what comes, in pieces, which receives are posted meanwhile,
// and when the other side leaves.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>

#include "fuzz/target.h"
#include "transport/socket/recv_comm.h"

namespace tutti::fuzz {
namespace {

using namespace transport::socket;
using transport::net::InMessage;
using transport::net::Request;

/// Bytes: as often as the number says.
enum class Event : uint8_t { Bytes, Post, Test, Check, End };
constexpr unsigned kEvents = 5;
constexpr int kQuiet = 200;  // passes: more than it goes on peeking

struct Receive {
  std::vector<std::byte> memory;  // of the capacity, so that what lies behind it is nobody's
  Request request;
};

class Scene {
 public:
  Scene() {
    std::array<int, 2> ends{};
    promise(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0, "there are descriptors");
    other_.reset(ends[1]);
    std::vector<UniqueFd> sockets;
    sockets.emplace_back(ends[0]);
    auto made = RecvComm::create(std::move(sockets), *Address::parse("192.0.2.7", 4711), {}, Settings());
    promise(made.has_value(), "a receiver without threads can be made");
    comm_ = std::move(*made);
  }

  void happen(Event event, uint8_t number, std::span<const std::byte> bytes) {
    switch (event) {
      case Event::Bytes:
        for (unsigned times = 0; times <= number % 16U; ++times) (void)::send(other_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        return;
      case Event::Post:
        return post(number, bytes.size() < 2 ? 0 : std::to_integer<size_t>(bytes[0]) | std::to_integer<size_t>(bytes[1]) << 8);
      case Event::Test: comm_->expect(); return (void)test();
      case Event::Check: return check();
      case Event::End: (void)shutdown(other_.get(), SHUT_WR); return;
    }
  }
  /// Everything that can come has come.
  void finish() {
    for (int quiet = 0; quiet < kQuiet && !open_.empty();) quiet = test() ? 0 : quiet + 1;
    check();
    const bool isBroken = !comm_->status().ok();
    if (isBroken) promise(comm_->status().text().find("192.0.2.7") != std::string::npos, "an error names the peer");
    if (isBroken) promise(test() == false, "who is broken does not move");
  }

 private:
  void post(uint8_t tag, size_t capacity) {
    Receive& one = open_.emplace_back();
    one.memory.resize(capacity);
    const Poll poll = comm_->irecv({one.memory.data(), capacity, tag, {}}, &one.request);
    if (poll != Poll::Ready) open_.pop_back();
  }
  /// Whether anything moved.
  bool test() {
    if (open_.empty()) return false;
    uint64_t bytes = 0;
    const auto tested = comm_->test(open_.front().request, &bytes);
    if (tested.poll == Poll::Failed) promise(!comm_->status().ok(), "whoever fails says why");
    if (tested.poll != Poll::Ready) return tested.poll == Poll::Pending && tested.moved;
    promise(bytes <= open_.front().memory.size(), "no message is larger than its room");
    open_.pop_front();
    return true;
  }
  void check() { promise((comm_->check() == Poll::Failed) == !comm_->status().ok(), "a failure has words, and nothing else has"); }

  UniqueFd other_;
  std::deque<Receive> open_;  // outlives the comm
  std::unique_ptr<RecvComm> comm_;
};

std::string line(Event event, uint8_t number, std::string_view bytes) {
  std::string text = {static_cast<char>(event), static_cast<char>(number), static_cast<char>(bytes.size()),
                      static_cast<char>(bytes.size() >> 8)};
  return text.append(bytes);
}

}  // namespace

void run(std::string_view input) {
  std::span<const std::byte> bytes = std::as_bytes(std::span(input));
  Scene scene;
  while (bytes.size() >= 4) {
    const auto event = static_cast<Event>(std::to_integer<unsigned>(bytes[0]) % kEvents);
    const size_t size = std::to_integer<size_t>(bytes[2]) | std::to_integer<size_t>(bytes[3]) << 8;
    const auto body = bytes.subspan(4, std::min(size, bytes.size() - 4));
    scene.happen(event, std::to_integer<uint8_t>(bytes[1]), body);
    bytes = bytes.subspan(4 + body.size());
  }
  scene.finish();
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  const auto frame = [](uint64_t bytes, int32_t tag, uint32_t pieceBytes = 0) {
    const Frame one{bytes, tag, pieceBytes};
    return std::string(reinterpret_cast<const char*>(&one), sizeof one);
  };
  const auto post = [](uint8_t tag, size_t capacity) {
    return line(Event::Post, tag, {std::array{static_cast<char>(capacity), static_cast<char>(capacity >> 8)}.data(), 2});
  };
  const std::string test = line(Event::Test, 0, "");
  const std::string message = line(Event::Bytes, 0, frame(100, 1) + std::string(100, 'a'));
  const std::string leave = line(Event::Bytes, 0, frame(kLeave, 0));
  const std::string end = line(Event::End, 0, "");
  all.push_back(post(1, 100) + message + test + test);
  all.push_back(message + line(Event::Check, 0, "") + post(1, 200) + test + leave + test + line(Event::Check, 0, ""));
  all.push_back(post(1, 100) + post(1, 100) + message + test + message + leave + end + test + test);
  all.push_back(post(2, 100) + post(1, 100) + message + line(Event::Bytes, 0, frame(3, 2).append("abc")) + test + test);  // by their tags
  all.push_back(post(1, 99) + message + test);                                                                      // too long
  all.push_back(post(1, 100) + line(Event::Bytes, 0, frame(100, 1, 50) + std::string(100, 'a')) + test);            // in pieces
  all.push_back(post(1, 100) + line(Event::Bytes, 0, frame(~uint64_t{7}, 1)) + test);
  all.push_back(post(1, 100) + line(Event::Bytes, 0, frame(kWelcome, 1)) + test);
  all.push_back(post(1, 100) + line(Event::Bytes, 0, frame(100, 1).substr(0, 9)) + test + end + test);            // cut in a frame
  all.push_back(post(1, 100) + line(Event::Bytes, 0, frame(100, 1) + std::string(40, 'a')) + test + end + test);  // in a message
  all.push_back(post(1, 0) + line(Event::Bytes, 0, frame(0, 1)) + test + end + line(Event::Check, 0, ""));
  std::string large = post(1, 15'000) + post(1, 15'000);
  for (const char byte : {'a', 'b'}) large += line(Event::Bytes, 0, frame(15'000, 1) + std::string(15'000, byte));
  all.push_back(large + test + test);
  std::string many;
  for (int i = 0; i < 40; ++i) many += post(1, 8) + line(Event::Bytes, 0, frame(8, 1) + "12345678");
  all.push_back(many + test + test + leave);
  std::string much = post(1, 5000) + line(Event::Bytes, 15, frame(5000, 1) + std::string(5000, 'a'));  // more than is read at a time
  for (int i = 0; i < 15; ++i) much.append(test).append(post(1, 5000));
  all.push_back(much);
  return all;
}

}  // namespace tutti::fuzz
