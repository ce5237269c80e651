#include "progress/poller.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace tutti::progress {

void DescriptorTraits::close(Type fd) noexcept { ::close(fd); }

Status Bell::open() {
  fd_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (fd_) return Status();
  return error(Code::SystemError, "make an eventfd: {}", std::strerror(errno));
}

void Bell::ring() const { (void)eventfd_write(fd_.get(), 1); }

void Bell::silence() const {
  eventfd_t ignored = 0;
  (void)eventfd_read(fd_.get(), &ignored);
}

Status Poller::open() {
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  if (epoll_) return Status();
  return error(Code::SystemError, "make an epoll set: {}", std::strerror(errno));
}

Status Poller::add(int descriptor, Watcher* watcher) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = watcher;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return Status();
  return error(Code::SystemError, "watch a descriptor: {}", std::strerror(errno));
}

void Poller::remove(int descriptor) { (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr); }

void Poller::harvest() {
  constexpr int kEvents = 128;
  epoll_event events[kEvents];
  int count = 0;
  do {
    count = epoll_wait(epoll_.get(), events, kEvents, 0);
    for (int i = 0; i < count; ++i) static_cast<Watcher*>(events[i].data.ptr)->onEvent();
  } while (count == kEvents);
}

uint32_t waitFor(std::span<const int> descriptors, Nanoseconds timeout) {
  constexpr size_t kMost = 4;
  std::array<pollfd, kMost> fds{};
  const size_t count = std::min(descriptors.size(), kMost);
  for (size_t i = 0; i < count; ++i) fds[i] = {descriptors[i], POLLIN, 0};
  constexpr int64_t kSecond = 1'000'000'000;
  const timespec limit{timeout.count() / kSecond, timeout.count() % kSecond};
  if (ppoll(fds.data(), count, timeout.count() < 0 ? nullptr : &limit, nullptr) <= 0) return 0;
  uint32_t ready = 0;
  for (size_t i = 0; i < count; ++i) {
    if (fds[i].revents != 0) ready |= 1U << i;
  }
  return ready;
}

}  // namespace tutti::progress
