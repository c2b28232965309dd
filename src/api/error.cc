#include "api/error.h"

#include "json/json.h"

namespace deepinfer {
namespace {

constexpr char kInvalidRequest[] = "invalid_request_error";

}  // namespace

ApiError to_api_error(const Error& error) {
  const std::string& message = error.message();
  switch (error.code()) {
    case Code::kInvalidArgument:
      return {400, message, kInvalidRequest, kInvalidRequest};
    case Code::kUnimplemented:
      return {400, message, kInvalidRequest, "unsupported_parameter"};
    case Code::kNotFound:
      return {404, message, kInvalidRequest, "model_not_found"};
    case Code::kResourceExhausted:
      return {429, message, "rate_limit_error", "rate_limit_error"};
    case Code::kUnavailable:
    case Code::kCancelled:
      return {503, message, "server_error", "server_overloaded"};
    case Code::kDeadlineExceeded:
      return {504, message, "server_error", "timeout"};
    case Code::kDataLoss:
    case Code::kIo:
    case Code::kInternal:
      return {500, message, "internal_error", "internal_error"};
  }
  return {500, message, "internal_error", "internal_error"};
}

ApiError context_length_error(std::string message) {
  return {400, std::move(message), kInvalidRequest, "context_length_exceeded"};
}

ApiError http_error(int status, std::string message) {
  const char* code = status == 401   ? "invalid_api_key"
                     : status == 404 ? "not_found"
                     : status == 405 ? "method_not_allowed"
                     : status == 408 ? "request_timeout"
                     : status == 413 ? "request_too_large"
                                     : kInvalidRequest;
  const char* type = status == 401  ? "authentication_error"
                     : status < 500 ? kInvalidRequest
                                    : "internal_error";
  return {status, std::move(message), type, code};
}

std::string to_json(const ApiError& error) {
  std::string out;
  JsonWriter(out)
      .begin_object()
      .key("error")
      .begin_object()
      .member("message", error.message)
      .member("type", error.type)
      .key("param")
      .null()
      .member("code", error.code)
      .end_object()
      .end_object();
  return out;
}

}  // namespace deepinfer
