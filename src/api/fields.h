// Reading optional request fields. Private to the room. Absent and null are the same.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "json/json.h"

namespace deepinfer {

inline bool given(const JsonRef& field) {
  return field.present() && !field.is_null();
}

// "invalid request body: messages[0].content: found ..., expected ...".
inline Error invalid_body(const Error& error) {
  return Error(error.code(), "invalid request body: {}", error.message());
}
inline Error missing_field(const JsonRef& field) {
  return Error(Code::kInvalidArgument, "invalid request body: missing field `{}`", field.path());
}
inline Error unsupported(std::string_view field, std::string_view why) {
  return Error(Code::kUnimplemented, "{} is not supported yet: {}", field, why);
}

inline Result<std::string> required_string(const JsonRef& field) {
  if (!field.present()) return missing_field(field);
  Result<std::string> value = field.string();
  if (!value.ok()) return invalid_body(value.error());
  return value;
}
inline Result<std::string> string_or(const JsonRef& field, std::string_view absent) {
  if (!given(field)) return std::string(absent);
  return required_string(field);
}
inline Result<bool> boolean_or(const JsonRef& field, bool absent) {
  if (!given(field)) return absent;
  Result<bool> value = field.boolean();
  if (!value.ok()) return invalid_body(value.error());
  return value;
}
inline Result<double> number_or(const JsonRef& field, double absent) {
  if (!given(field)) return absent;
  Result<double> value = field.number();
  if (!value.ok()) return invalid_body(value.error());
  return value;
}
inline Result<std::vector<JsonRef>> required_array(const JsonRef& field) {
  if (!field.present()) return missing_field(field);
  Result<std::vector<JsonRef>> value = field.array();
  if (!value.ok()) return invalid_body(value.error());
  return value;
}

}  // namespace deepinfer
