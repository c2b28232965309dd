// Draws a schema from the bytes, with what hurts (escapes, hexadecimal digits, controls, edges of numbers and of Unicode),
// walks through its grammar as they say, and judges what is finished with a validator of its own.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <future>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "tokenizer/utf8.h"

namespace deepinfer {
namespace {

using Object = JsonValue::Object;
using Array = JsonValue::Array;

const Tokenizer& mini_tokenizer() {
  static const Result<Tokenizer> tokenizer = Tokenizer::load(DEEPINFER_SOURCE_DIR "/models/mini/tokenizer.json");
  CHECK(tokenizer.ok());
  return *tokenizer;
}
TokenId end_id() {
  static const TokenId end = mini_tokenizer().id_of_added("<｜end▁of▁sentence｜>").value();
  return end;
}
GrammarCompiler& compiler() {
  static GrammarCompiler compiler(mini_tokenizer(), mini_tokenizer().vocab_size(), {end_id()}, {});
  return compiler;
}

// The input, byte by byte; zeros behind its end.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool more() const { return at_ < size_; }
  uint8_t next() { return more() ? data_[at_++] : 0; }
  template <typename T, size_t N>
  const T& pick(const T (&items)[N]) {
    return items[next() % N];
  }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

class Schemas {
 public:
  explicit Schemas(Bytes& bytes) : bytes_(bytes) {}

  JsonValue schema(int depth = 0) {
    switch (bytes_.next() % (depth > 1 ? 6 : 9)) {
      case 0:
        return Object{{"type", "string"}, {"pattern", "^" + pattern() + "$"}};
      case 1:
        return Object{{"type", "string"}, {"minLength", int64_t{bytes_.next() % 4}}, {"maxLength", int64_t{4 + bytes_.next() % 4}}};
      case 2:
        return bounded("number");
      case 3:
        return bounded("integer");
      case 4:
        return Object{{"enum", Array{value(), value()}}};
      case 5:
        return Object{{"type", "string"}};
      case 6:
        return Object{{"type", "array"}, {"items", schema(depth + 1)}, {"minItems", int64_t{bytes_.next() % 3}}, {"maxItems", 3}};
      case 7:
        return Object{{"anyOf", Array{schema(depth + 1), schema(depth + 1)}}};
      default:
        return object(depth);
    }
  }

 private:
  JsonValue object(int depth) {
    static constexpr const char* kNames[] = {"a", "b", "", "é", "q\"q", "s\\s", "x/y", "n\nn"};
    const std::string one = bytes_.pick(kNames), other = bytes_.pick(kNames);
    Object properties = {{one, schema(depth + 1)}};
    if (other != one) properties.push_back({other, schema(depth + 1)});
    Object out = {{"type", "object"}, {"properties", std::move(properties)}, {"required", Array{one}}};
    if (bytes_.next() % 2 == 0) out.push_back({"additionalProperties", schema(depth + 1)});
    return out;
  }

  JsonValue bounded(const char* type) {
    static constexpr const char* kLow[] = {"minimum", "exclusiveMinimum"};
    static constexpr const char* kHigh[] = {"maximum", "exclusiveMaximum"};
    Object out = {{"type", type}};
    if (bytes_.next() % 3 != 0) out.push_back({bytes_.pick(kLow), edge()});
    if (bytes_.next() % 3 != 0) out.push_back({bytes_.pick(kHigh), edge()});
    return out;
  }
  double edge() {
    static constexpr double kEdges[] = {0, 1, -1, 9, 10, 99.5, 600.1234567, -0.25, 0.0000004, 12345.1234564, 1e14, -100};
    return bytes_.pick(kEdges) + (bytes_.next() - 128) / std::pow(10.0, bytes_.next() % 9);
  }
  JsonValue value() {
    static const JsonValue kValues[] = {JsonValue(), true, 0.1, 1e22, int64_t{1} << 62, uint64_t{1} << 63, "\"", "\\", "\n",
                                        "\x01", "</think>", "é", Array{1, 2.5}, Object{{"a", 0.1}}, -0.0, ""};
    return bytes_.pick(kValues);
  }

  std::string pattern(int depth = 0) {
    static constexpr const char* kPieces[] = {"a", "7", "\\\\", "\"", "\\n", "\\t", "\t", "\\x22", "\\x41", "\\x5c", "b", "0", "\\u00e9",
                                              "é", "/", "\\.", "<", ".", "\\d", "\\w", "[^a]", "[a\"]", "[\\\\]", "[^\"\\\\]", "[ -~]", "[\\x01-\\x1f]"};
    static constexpr const char* kCounts[] = {"", "", "", "?", "*", "+", "{2}", "{0,3}", "{1,}", "{3,5}"};
    std::string out;
    for (int left = 1 + bytes_.next() % 3; left > 0; --left) {
      const bool is_group = depth < 2 && bytes_.next() % 6 == 0;
      out += is_group ? "(" + pattern(depth + 1) + "|" + pattern(depth + 1) + ")" : bytes_.pick(kPieces);
      out += bytes_.pick(kCounts);
    }
    return out;
  }

  Bytes& bytes_;
};

std::wstring wide(std::string_view text) {
  std::wstring out;
  for (; !text.empty();) {
    const Utf8Part part = utf8_character(text.data());
    out += static_cast<wchar_t>(part.code_point);
    text.remove_prefix(part.length);
  }
  return out;
}

bool within(const JsonValue& value, const JsonValue& schema) {
  const double number = *value.number();
  const auto holds = [&](const char* keyword, auto&& compare) {
    const JsonValue* bound = schema.find(keyword);
    return bound == nullptr || compare(number, *bound->number());
  };
  return holds("minimum", std::greater_equal<>()) && holds("maximum", std::less_equal<>()) &&
         holds("exclusiveMinimum", std::greater<>()) && holds("exclusiveMaximum", std::less<>());
}

bool is_valid(const JsonValue& value, const JsonValue& schema) {
  if (const JsonValue* branches = schema.find("anyOf"))
    return std::any_of(branches->array()->begin(), branches->array()->end(),
                       [&](const JsonValue& one) { return is_valid(value, one); });
  if (const JsonValue* values = schema.find("enum"))
    return std::any_of(values->array()->begin(), values->array()->end(), [&](const JsonValue& one) {
      return one.number() && value.number() ? *one.number() == *value.number() : one == value;
    });
  const std::string& type = *schema.find("type")->string();
  if (type == "number") return value.number() && within(value, schema);
  if (type == "integer") return value.number() && std::floor(*value.number()) == *value.number() && within(value, schema);
  if (type == "string") {
    if (value.string() == nullptr) return false;
    const std::wstring text = wide(*value.string());
    if (const JsonValue* shortest = schema.find("minLength"))
      return std::ssize(text) >= *shortest->int64() && std::ssize(text) <= *schema.find("maxLength")->int64();
    const JsonValue* pattern = schema.find("pattern");
    return pattern == nullptr || std::regex_search(text, std::wregex(wide(*pattern->string())));
  }
  if (type == "array") {
    return value.array() != nullptr && std::ssize(*value.array()) >= *schema.find("minItems")->int64() &&
           std::ssize(*value.array()) <= 3 &&
           std::all_of(value.array()->begin(), value.array()->end(),
                       [&](const JsonValue& one) { return is_valid(one, *schema.find("items")); });
  }
  if (value.object() == nullptr || value.find(*(*schema.find("required")->array())[0].string()) == nullptr) return false;
  return std::all_of(value.object()->begin(), value.object()->end(), [&](const JsonMember& member) {
    const JsonValue* own = schema.find("properties")->find(member.key);
    const JsonValue* others = schema.find("additionalProperties");
    return own != nullptr ? is_valid(member.value, *own) : others != nullptr && is_valid(member.value, *others);
  });
}

// A finished answer, or nothing.
std::optional<std::string> walk(const OutputConstraint& constraint, Bytes& bytes) {
  const int64_t vocab = mini_tokenizer().vocab_size();
  const auto state = constraint.start();
  std::vector<uint32_t> mask(static_cast<size_t>(mask_words(vocab)));
  const auto is_allowed = [&mask](int64_t id) { return (mask[static_cast<size_t>(id) / 32] >> id % 32 & 1) != 0; };
  std::string text;
  for (int i = 0; i < 80; ++i) {
    CHECK(state->fill_mask(mask));
    if (is_allowed(end_id()) && (!bytes.more() || bytes.next() % 2 == 0)) return text;
    const int64_t from = bytes.next() * 8 + bytes.next() % 8;
    int64_t id = -1;
    for (int64_t k = 0; k < vocab && id < 0; ++k) {
      const int64_t candidate = (from + k) % vocab;
      if (candidate != end_id() && is_allowed(candidate)) id = candidate;
    }
    if (id < 0) return is_allowed(end_id()) ? std::optional(text) : std::nullopt;
    CHECK(state->accept(static_cast<int32_t>(id)).ok());
    text += mini_tokenizer().token_bytes(static_cast<TokenId>(id));
  }
  return std::nullopt;
}

}  // namespace
}  // namespace deepinfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deepinfer;
  Bytes bytes(data, std::min<size_t>(size, 1024));
  const JsonValue schema = Schemas(bytes).schema();
  const auto spec = prepare_json_schema(schema, "schema");
  if (!spec.ok()) return 0;
  std::promise<GrammarCompiler::Compiled> promise;
  compiler().compile(*spec, [&promise](GrammarCompiler::Compiled result) { promise.set_value(std::move(result)); });
  const auto compiled = promise.get_future().get();
  if (!compiled.ok()) return 0;
  const auto constraint = make_constraint({.grammar = *compiled}, mini_tokenizer().vocab_size());
  const auto text = walk(*constraint, bytes);
  if (!text) return 0;
  const auto value = parse_json(*text);
  if (!value.ok() || !is_valid(*value, schema)) {
    fmt::print(stderr, "{}\n{}\n", to_json(schema), *text);
    CHECK(false);
  }
  return 0;
}
