#include "core/descriptor_message.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

namespace tutti::descriptor_message_test {
namespace {

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    first.reset(ends[0]);
    second.reset(ends[1]);
  }
  UniqueFd first;
  UniqueFd second;
};

TEST(DescriptorMessage, ADuplicateArrives) {
  const Pair sockets;
  const UniqueFd memory(memfd_create("tutti-test", MFD_CLOEXEC));
  ASSERT_EQ(write(memory.get(), "hello", 5), 5);
  ASSERT_TRUE(sendDescriptor(sockets.first.get(), memory.get(), "memory").ok());
  const auto received = receiveDescriptor(sockets.second.get(), "memory");
  ASSERT_TRUE(received) << received.error().text();
  EXPECT_NE(received->get(), memory.get());
  char text[6] = {};
  EXPECT_EQ(pread(received->get(), text, 5, 0), 5);
  EXPECT_STREQ(text, "hello");
  EXPECT_NE(fcntl(received->get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(DescriptorMessage, NothingYetIsNoDescriptor) {
  const Pair sockets;
  const auto received = receiveDescriptor(sockets.second.get(), "memory");
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code(), Code::SystemError);
}

TEST(DescriptorMessage, WhoIsGoneHandsNothingOver) {
  Pair sockets;
  sockets.first.reset();
  const auto received = receiveDescriptor(sockets.second.get(), "the memory");
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code(), Code::RemoteError);
  EXPECT_NE(received.error().text().find("the memory"), std::string::npos);
  EXPECT_EQ(sendDescriptor(sockets.second.get(), 0, "it").code(), Code::SystemError) << "and no signal";
}

TEST(DescriptorMessage, AByteWithoutADescriptorIsAnError) {
  const Pair sockets;
  ASSERT_EQ(write(sockets.first.get(), "x", 1), 1);
  const auto received = receiveDescriptor(sockets.second.get(), "memory");
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code(), Code::SystemError);
}

/// The padding behind one descriptor has room for another, which nobody would close.
TEST(DescriptorMessage, OfSeveralDescriptorsNoneStaysOpen) {
  const Pair sockets;
  const std::array<int, 2> two = {0, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof two)> room{};
  char one = 1;
  iovec data{&one, 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room.data();
  message.msg_controllen = room.size();
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof two);
  std::memcpy(CMSG_DATA(head), two.data(), sizeof two);
  ASSERT_EQ(sendmsg(sockets.first.get(), &message, 0), 1);
  const int next = UniqueFd(dup(1)).get();  // the lowest free number
  const auto received = receiveDescriptor(sockets.second.get(), "memory");
  ASSERT_FALSE(received);
  EXPECT_NE(received.error().text().find("it sent several"), std::string::npos) << received.error().text();
  EXPECT_EQ(UniqueFd(dup(1)).get(), next) << "descriptors that came stay open";
}

TEST(DescriptorMessage, NoRoomForADescriptorIsSaid) {
  const Pair sockets;
  ASSERT_TRUE(sendDescriptor(sockets.first.get(), 1, "memory").ok());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const UniqueFd next(dup(1));  // the lowest free number: no more than that are allowed
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next.get());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto received = receiveDescriptor(sockets.second.get(), "memory");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(received);
  EXPECT_NE(received.error().text().find("no descriptor is left here"), std::string::npos) << received.error().text();
}

}  // namespace
}  // namespace tutti::descriptor_message_test
