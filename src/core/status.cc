#include "core/status.h"

#include <utility>

namespace tutti {

std::string_view codeName(Code code) {
  switch (code) {
    case Code::Ok: return "ok";
    case Code::UnhandledCudaError: return "unhandled CUDA error";
    case Code::SystemError: return "system error";
    case Code::InternalError: return "internal error";
    case Code::InvalidArgument: return "invalid argument";
    case Code::InvalidUsage: return "invalid usage";
    case Code::RemoteError: return "remote error";
    case Code::InProgress: return "in progress";
  }
  return "unknown code";
}

Status::Status(Code code, std::string text) {
  if (code != Code::Ok) error_ = std::make_unique<Error>(Error{code, std::move(text), {}});
}

Status::Status(const Status& other) : error_(other.error_ ? std::make_unique<Error>(*other.error_) : nullptr) {}

Status& Status::operator=(const Status& other) {
  if (this != &other) error_ = other.error_ ? std::make_unique<Error>(*other.error_) : nullptr;
  return *this;
}

std::string Status::text() const {
  if (!error_) return {};
  if (error_->path.empty()) return error_->text;
  return format("{} [{}]", error_->text, error_->path);
}

Status Status::at(std::string_view where) && {
  if (error_) {
    if (!error_->path.empty()) error_->path += " < ";
    error_->path += where;
  }
  return std::move(*this);
}

}  // namespace tutti
