// JSON in and out: an order-keeping value tree parsed by simdjson, and an append-only writer.
//
// Reading. Numbers keep whether they were integers: those in [-2^63, 2^64-1] stay exact, everything else is a
// double. Input must be UTF-8 (a lone surrogate escape is an error too). Objects keep the order of their
// keys; of equal keys the last value wins at the place of the first, as in most parsers, unless the options
// ask for an error. Writing. See JsonStyle. Both directions are pure functions of their input; values are
// thread-compatible.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace deepinfer {

struct JsonMember;

class JsonValue {
 public:
  enum class Kind { kNull, kBool, kInt64, kUint64, kDouble, kString, kArray, kObject };
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;

  JsonValue() = default;  // null
  JsonValue(bool value);
  template <std::integral T>
  JsonValue(T value) : value_(integer(value)) {}
  JsonValue(double value);
  JsonValue(std::string value);
  JsonValue(std::string_view value);
  JsonValue(const char* value);
  JsonValue(Array value);
  JsonValue(Object value);

  // kUint64 only above 2^63-1, so an integer has one representation.
  Kind kind() const { return static_cast<Kind>(value_.index()); }
  std::string_view kind_name() const;  // "null", "boolean", "integer", "number", "string", "array", "object"
  bool is_null() const { return kind() == Kind::kNull; }

  // The value when it is of that kind and fits; nullopt or nullptr otherwise. An integer is also a number,
  // and a double is never an integer, even 1.0.
  std::optional<bool> boolean() const;
  std::optional<int64_t> int64() const;
  std::optional<uint64_t> uint64() const;
  std::optional<double> number() const;
  const std::string* string() const { return std::get_if<std::string>(&value_); }
  const Array* array() const { return std::get_if<Array>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }
  Array* array() { return std::get_if<Array>(&value_); }
  Object* object() { return std::get_if<Object>(&value_); }

  // The member `key` of an object, by linear search; nullptr when this is not an object or lacks the key.
  const JsonValue* find(std::string_view key) const;
  JsonValue* find(std::string_view key);

  friend bool operator==(const JsonValue& a, const JsonValue& b);

 private:
  using Storage = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object>;

  template <std::integral T>
  static Storage integer(T value) {
    if (std::in_range<int64_t>(value)) return Storage(static_cast<int64_t>(value));
    return Storage(static_cast<uint64_t>(value));
  }

  Storage value_;
};

struct JsonMember {
  std::string key;
  JsonValue value;
  friend bool operator==(const JsonMember& a, const JsonMember& b) = default;
};

// Defined here because the storage needs a whole JsonMember.
inline JsonValue::JsonValue(bool value) : value_(value) {}
inline JsonValue::JsonValue(double value) : value_(value) {}
inline JsonValue::JsonValue(std::string value) : value_(std::move(value)) {}
inline JsonValue::JsonValue(std::string_view value) : value_(std::string(value)) {}
inline JsonValue::JsonValue(const char* value) : value_(std::string(value)) {}
inline JsonValue::JsonValue(Array value) : value_(std::move(value)) {}
inline JsonValue::JsonValue(Object value) : value_(std::move(value)) {}

enum class DuplicateKeys { kLastWins, kError };

struct JsonParseOptions {
  DuplicateKeys duplicate_keys = DuplicateKeys::kLastWins;
  size_t max_depth = 256;  // nested arrays and objects; one more is an error
  size_t max_values = std::numeric_limits<size_t>::max();  // of all kinds together
};

// Whether bytes are well-formed UTF-8, as all JSON text has to be.
bool is_utf8(std::string_view bytes);

// One whole document. kInvalidArgument says what is wrong and where: "line 3, column 14: ...".
Result<JsonValue> parse_json(std::string_view text, const JsonParseOptions& options = {});

// A place in a document: a value, or its absence, with the path that led there. Typed access fails with that
// path: "text_config.hidden_size: found string, expected integer". Borrows the document.
class JsonRef {
 public:
  explicit JsonRef(const JsonValue& document, std::string path = "")
      : value_(&document), path_(std::move(path)) {}

  JsonRef operator[](
      std::string_view key) const;  // absent when this is absent, no object, or has no such key
  JsonRef operator[](size_t index) const;
  bool present() const { return value_ != nullptr; }
  bool is_null() const { return present() && value_->is_null(); }
  const JsonValue* value() const { return value_; }  // nullptr when absent
  const std::string& path() const { return path_; }

  Result<bool> boolean() const;
  Result<int64_t> int64() const;
  Result<uint64_t> uint64() const;
  Result<double> number() const;
  Result<std::string> string() const;
  // The elements as places of their own.
  Result<std::vector<JsonRef>> array() const;
  Result<const JsonValue::Object*> object() const;

 private:
  JsonRef(const JsonValue* value, std::string path) : value_(value), path_(std::move(path)) {}
  Error mismatch(std::string_view expected) const;

  const JsonValue* value_;
  std::string path_;
};

enum class JsonStyle {
  kCompact,  // {"a":1,"b":[0.00001,1e+16]}; doubles: shortest digits, exponent form below 1e-5 and from 1e16
  kPython,   // {"a": 1, "b": [1e-05, 1e+16]}; doubles as Python's repr (recipe 2.1)
  kSpaced,   // {"a": 1, "b": [0.00001, 1e+16]}; separators of kPython, doubles of kCompact
};

// Appends JSON to a string. The caller keeps begin and end balanced and gives every member a key; text must
// be UTF-8. Of the characters only ", \ and controls are escaped. NaN and infinity have no JSON form and
// become null.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out, JsonStyle style = JsonStyle::kCompact) : out_(out), style_(style) {}

  JsonWriter& begin_object() { return begin('{'); }
  JsonWriter& end_object() { return end('}'); }
  JsonWriter& begin_array() { return begin('['); }
  JsonWriter& end_array() { return end(']'); }
  JsonWriter& key(std::string_view key);

  JsonWriter& null();
  JsonWriter& value(bool value);
  JsonWriter& value(double value);
  JsonWriter& value(std::string_view value);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(const JsonValue& value);
  template <std::integral T>
  JsonWriter& value(T number) {
    if constexpr (std::is_signed_v<T>) return value_int64(number);
    return value_uint64(number);
  }
  // Text that is JSON already.
  JsonWriter& raw(std::string_view json);

  template <typename T>
  JsonWriter& member(std::string_view name, const T& content) {
    return key(name).value(content);
  }

 private:
  JsonWriter& begin(char bracket);
  JsonWriter& end(char bracket);
  JsonWriter& value_int64(int64_t value);
  JsonWriter& value_uint64(uint64_t value);
  void separate();

  std::string& out_;  // borrowed from the caller
  const JsonStyle style_;
  bool after_value_ = false;  // the next element of the same container needs a comma
};

std::string to_json(const JsonValue& value, JsonStyle style = JsonStyle::kCompact);
// `text` as a JSON string with its quotes.
void append_json_string(std::string& out, std::string_view text);
// A finite double as JSON text; "null" otherwise.
void append_json_number(std::string& out, double value, JsonStyle style);

}  // namespace deepinfer
