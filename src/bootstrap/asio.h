// asio as this folder uses it: nothing else includes it, so that every file sees it configured alike.
//
// 1. Without Boost, without type information, and nothing of it visible outside the library.
// 2. The way it allocates is laid down: left alone it depends on which standard header a file includes before it, and memory taken in one
//    way in one file is given back in another way in another.
#pragma once

#define ASIO_STANDALONE
#define ASIO_NO_DEPRECATED
#define ASIO_DISABLE_VISIBILITY
#define ASIO_DISABLE_STD_ALIGNED_ALLOC

#include <asio/buffer.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/generic/stream_protocol.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
