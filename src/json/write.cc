// The writer: separators, string escapes and the two ways to print a double.
#include <array>
#include <charconv>
#include <cmath>

#include "json/json.h"

namespace deepinfer {
namespace {

struct Decimal {  // d1.d2d3... * 10^exponent
  bool negative = false;
  std::string digits;
  int exponent = 0;
};

// The shortest digits that read back as the same double.
Decimal shortest(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, end - buffer);
  Decimal out;
  out.negative = text.front() == '-';
  if (out.negative) text.remove_prefix(1);
  const size_t e = text.find('e');
  for (const char c : text.substr(0, e)) {
    if (c != '.') out.digits.push_back(c);
  }
  const std::string_view exponent = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(exponent.data(), exponent.data() + exponent.size(), out.exponent);
  return out;
}

void append_positional(std::string& out, const Decimal& number) {
  const auto length = static_cast<int>(number.digits.size());
  if (number.exponent < 0) {
    out.append("0.").append(-number.exponent - 1, '0').append(number.digits);
  } else if (number.exponent + 1 >= length) {
    out.append(number.digits).append(number.exponent + 1 - length, '0').append(".0");
  } else {
    out.append(number.digits, 0, number.exponent + 1).append(".").append(number.digits, number.exponent + 1);
  }
}

void append_exponential(std::string& out, const Decimal& number, size_t exponent_digits) {
  out.push_back(number.digits[0]);
  if (number.digits.size() > 1) out.append(".").append(number.digits, 1);
  out.append(number.exponent < 0 ? "e-" : "e+");
  const std::string exponent = std::to_string(std::abs(number.exponent));
  if (exponent.size() < exponent_digits) out.append(exponent_digits - exponent.size(), '0');
  out.append(exponent);
}

}  // namespace

void append_json_number(std::string& out, double value, JsonStyle style) {
  if (!std::isfinite(value)) {
    out.append("null");
    return;
  }
  const Decimal number = shortest(value);
  if (number.negative) out.push_back('-');
  const int smallest_positional = style == JsonStyle::kPython ? -4 : -5;
  if (number.exponent < smallest_positional || number.exponent >= 16) {
    append_exponential(out, number, style == JsonStyle::kPython ? 2 : 1);
  } else {
    append_positional(out, number);
  }
}

void append_json_string(std::string& out, std::string_view text) {
  // What to write after the backslash; 0: the byte stands for itself, 'u': a code of four digits.
  static constexpr auto kEscapes = [] {
    std::array<char, 256> escapes{};
    for (int control = 0; control < 0x20; ++control) escapes[control] = 'u';
    escapes['\b'] = 'b', escapes['\f'] = 'f', escapes['\n'] = 'n', escapes['\r'] = 'r', escapes['\t'] = 't';
    escapes['"'] = '"', escapes['\\'] = '\\';
    return escapes;
  }();
  static constexpr char kHex[] = "0123456789abcdef";
  out.push_back('"');
  size_t plain = 0;  // start of what was not appended yet
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const char escape = kEscapes[byte];
    if (escape == 0) continue;
    out.append(text.substr(plain, i - plain));
    plain = i + 1;
    const char escaped[] = {'\\', escape, '0', '0', kHex[byte >> 4], kHex[byte & 15]};
    out.append(escaped, escape == 'u' ? 6 : 2);
  }
  out.append(text.substr(plain));
  out.push_back('"');
}

void JsonWriter::separate() {
  if (after_value_) out_.append(style_ == JsonStyle::kCompact ? "," : ", ");
  after_value_ = true;
}

JsonWriter& JsonWriter::begin(char bracket) {
  separate();
  out_.push_back(bracket);
  after_value_ = false;
  return *this;
}

JsonWriter& JsonWriter::end(char bracket) {
  out_.push_back(bracket);
  after_value_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view key) {
  separate();
  append_json_string(out_, key);
  out_.append(style_ == JsonStyle::kCompact ? ":" : ": ");
  after_value_ = false;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_.append(json);
  return *this;
}

JsonWriter& JsonWriter::null() {
  return raw("null");
}
JsonWriter& JsonWriter::value(bool value) {
  return raw(value ? "true" : "false");
}

JsonWriter& JsonWriter::value_int64(int64_t value) {
  char buffer[24];
  return raw({buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr});
}

JsonWriter& JsonWriter::value_uint64(uint64_t value) {
  char buffer[24];
  return raw({buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr});
}

JsonWriter& JsonWriter::value(double value) {
  separate();
  append_json_number(out_, value, style_);
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view value) {
  separate();
  append_json_string(out_, value);
  return *this;
}

JsonWriter& JsonWriter::value(const JsonValue& value) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return null();
    case JsonValue::Kind::kBool:
      return this->value(*value.boolean());
    case JsonValue::Kind::kInt64:
      return value_int64(*value.int64());
    case JsonValue::Kind::kUint64:
      return value_uint64(*value.uint64());
    case JsonValue::Kind::kDouble:
      return this->value(*value.number());
    case JsonValue::Kind::kString:
      return this->value(std::string_view(*value.string()));
    case JsonValue::Kind::kArray:
      begin_array();
      for (const JsonValue& element : *value.array()) this->value(element);
      return end_array();
    case JsonValue::Kind::kObject:
      begin_object();
      for (const JsonMember& member : *value.object()) key(member.key).value(member.value);
      return end_object();
  }
  return *this;
}

std::string to_json(const JsonValue& value, JsonStyle style) {
  std::string out;
  JsonWriter(out, style).value(value);
  return out;
}

}  // namespace deepinfer
