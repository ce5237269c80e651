// What a forked child must not hold on to. A connection ends for its peer when the last descriptor of it is closed: with copies in a child,
// a data loader say, nobody would hear of its parent's death before that child's, and a listener would go on to take connections that
// nobody serves.
//
// Owner: the process. Any thread; the child's handler (pthread_atfork) makes system calls alone.
// 1. In the child an event descriptor takes the place of each such socket. Its number stays taken, so that who closes it there, a
//    destructor say, closes no file of the child's own.
// 2. A number that means something else by then, because the socket was closed and the number given anew, is left alone.
// 3. What begins without fork()'s handlers, by clone(2) say, keeps its copies, and so does a child that is forked while another thread is
//    about to call here. What is exec'd has none anyhow: sockets are close-on-exec.
#pragma once

#include "core/unique_fd.h"

namespace tutti {

/// While it lives, what the calling thread opens is in a table of descriptors of its own, or of a process that shares this one's memory:
/// nothing of that is remembered, since the numbers mean something else here.
class OtherDescriptors {
 public:
  OtherDescriptors();
  ~OtherDescriptors();
  OtherDescriptors(const OtherDescriptors&) = delete;
  OtherDescriptors& operator=(const OtherDescriptors&) = delete;
};

/// `socket`, which may be none, is not for children. Numbers of 65536 and more are not remembered.
void keepFromChildren(int socket);

/// The same of one that has just been opened or accepted, or could not be; errno stays.
inline UniqueFd keptFromChildren(int socket) {
  keepFromChildren(socket);
  return UniqueFd(socket);
}

}  // namespace tutti
