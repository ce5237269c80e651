// A lock that may lie in memory which processes share, and whose owner may die.
//
// Owner: whoever owns the memory. Any thread of any process that has it mapped. For slow paths only.
// 1. init() comes first, once, before anybody else sees it.
// 2. When an owner has died the next one gets the lock: what it protects must make sense after every single store.
#pragma once

#include <pthread.h>

#include <cerrno>

namespace tutti::transport::local {

class SharedMutex {
 public:
  void init() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex_, &attributes);
    pthread_mutexattr_destroy(&attributes);
  }
  void lock() {
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

}  // namespace tutti::transport::local
