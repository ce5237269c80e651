// A library and the context that its init returned, for one use of it: alive as long as anything made from it.
// Owner: shared by a network, its listeners and comms. Any thread.
#pragma once

#include <memory>
#include <utility>

#include "transport/plugin/library.h"
#include "transport/plugin/network.h"

namespace tutti::transport::plugin {

struct PluginNetwork::Session {
 public:
  Session(std::shared_ptr<Library> library, const net::Use& use) : library_(std::move(library)), use_(use) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    if (open_ && library_->version().initPerComm) (void)library_->version().finalize(library_->raw(), context_);
  }
  Status open() {
    Status status = library_->init(use_, &context_);
    open_ = status.ok();
    return status;
  }
  const net::Use& use() const { return use_; }
  const Library& library() const { return *library_; }
  const Version& version() const { return library_->version(); }
  const void* raw() const { return library_->raw(); }
  void* context() const { return context_; }
  Status statusOf(int code, std::string_view what) const { return plugin::statusOf(code, library_->networkName(), what); }

 private:
  const std::shared_ptr<Library> library_;
  const net::Use use_;
  void* context_ = nullptr;
  bool open_ = false;
};

}  // namespace tutti::transport::plugin
