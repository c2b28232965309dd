// Text to value tree. The only file that sees simdjson (its On-Demand face, which shows each number's own
// text).
#include <simdjson.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <string_view>
#include <vector>

#include "json/json.h"

namespace deepinfer {
namespace {

namespace ondemand = simdjson::ondemand;

// One document being read, inside a pair of brackets that we put around it: simdjson's rules for a bare
// number, word or string at the root differ from those inside an array. "[text]" is an array of one element
// exactly when text is JSON. Errors travel as simdjson's codes; reason_ replaces their wording where we know
// better.
class TreeBuilder {
 public:
  TreeBuilder(std::string_view text, const JsonParseOptions& options) : options_(options) {
    padded_.reserve(text.size() + 2 + simdjson::SIMDJSON_PADDING);
    padded_.append("[").append(text).append("]");
  }

  Result<JsonValue> build() {
    JsonValue root;
    auto error = parser_.allocate(padded_.size(), options_.max_depth + 2);
    if (!error) error = parser_.iterate(simdjson::padded_string_view(padded_)).get(document_);
    if (error) return failure(error, std::nullopt);
    if ((error = build_root(root))) return failure(error, location());
    return root;
  }

 private:
  simdjson::error_code build_root(JsonValue& root) {
    ondemand::array brackets;
    if (auto error = document_.get_array().get(brackets)) return error;
    size_t count = 0;
    for (auto element : brackets) {
      ondemand::value value;
      if (auto error = element.get(value)) return error;
      if (++count > 1) return simdjson::TAPE_ERROR;
      if (auto error = build_value(value, 0, root)) return error;
    }
    if (document_.current_location().error() != simdjson::OUT_OF_BOUNDS) return simdjson::TAPE_ERROR;
    return count == 0 ? simdjson::EMPTY : simdjson::SUCCESS;
  }

  simdjson::error_code build_value(ondemand::value node, size_t depth, JsonValue& out) {
    if (++num_values_ > options_.max_values) return too_many();
    ondemand::json_type type;
    if (auto error = node.type().get(type)) return error;
    switch (type) {
      case ondemand::json_type::object:
        return build_object(node, depth + 1, out);
      case ondemand::json_type::array:
        return build_array(node, depth + 1, out);
      case ondemand::json_type::number:
        return build_number(node, out);
      case ondemand::json_type::string: {
        std::string_view text;
        const auto error = node.get_string().get(text);
        if (!error) out = text;
        return error;
      }
      case ondemand::json_type::boolean: {
        bool value = false;
        const auto error = node.get_bool().get(value);
        if (!error) out = value;
        return error;
      }
      case ondemand::json_type::null:
        return build_null(node, out);
    }
    return simdjson::TAPE_ERROR;
  }

  // The start of a token, for a message: short, and never half a character.
  static std::string_view quotable(std::string_view token) {
    size_t length = 0;
    while (length < std::min<size_t>(token.size(), 40) && token[length] > ' ' && token[length] < 0x7f)
      ++length;
    return token.substr(0, length);
  }

  // is_null() says only whether the text begins like null, so the whole word is compared here.
  simdjson::error_code build_null(ondemand::value node, JsonValue& out) {
    const std::string_view token = trimmed(std::string_view(node.raw_json_token()));
    bool is_null = false;
    if (token != "null" || node.is_null().get(is_null) || !is_null) return simdjson::N_ATOM_ERROR;
    out = JsonValue();
    return simdjson::SUCCESS;
  }

  simdjson::error_code build_array(ondemand::value node, size_t depth, JsonValue& out) {
    if (depth > options_.max_depth) return too_deep();
    ondemand::array array;
    if (auto error = node.get_array().get(array)) return error;
    JsonValue::Array elements;
    for (auto element : array) {
      ondemand::value value;
      if (auto error = element.get(value)) return error;
      if (auto error = build_value(value, depth, elements.emplace_back())) return error;
    }
    out = std::move(elements);
    return simdjson::SUCCESS;
  }

  simdjson::error_code build_object(ondemand::value node, size_t depth, JsonValue& out) {
    if (depth > options_.max_depth) return too_deep();
    ondemand::object object;
    if (auto error = node.get_object().get(object)) return error;
    JsonValue::Object members;
    for (auto element : object) {
      ondemand::field field;
      if (auto error = std::move(element).get(field)) return error;
      std::string_view key;
      if (auto error = field.unescaped_key().get(key)) return error;
      JsonMember& member = members.emplace_back(JsonMember{std::string(key), JsonValue()});
      if (auto error = build_value(field.value(), depth, member.value)) return error;
    }
    if (members.size() > 1) {
      if (auto error = settle_duplicates(members)) return error;
    }
    out = std::move(members);
    return simdjson::SUCCESS;
  }

  // An integer keeps its exact value while it fits 64 bits. "-0" is a double: no integer has that sign.
  simdjson::error_code build_number(ondemand::value node, JsonValue& out) {
    const std::string_view token = trimmed(std::string_view(node.raw_json_token()));
    if (token.find_first_of(".eE") == std::string_view::npos && token != "-0") {
      int64_t small = 0;
      if (!node.get_int64().get(small)) return out = small, simdjson::SUCCESS;
      uint64_t large = 0;
      if (!node.get_uint64().get(large)) return out = large, simdjson::SUCCESS;
    }
    double value = 0;
    const auto error = node.get_double().get(value);
    if (error == simdjson::NUMBER_ERROR)
      reason_ = fmt::format("bad or too large number '{}'", quotable(token));
    if (!error) out = value;
    return error;
  }

  // Equal keys: the last value at the place of the first. Sorting finds them: whoever chooses the keys could make any
  // hash table slow whose hash they know.
  simdjson::error_code settle_duplicates(JsonValue::Object& members) {
    std::vector<size_t> order(members.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&members](size_t a, size_t b) {
      const int compared = members[a].key.compare(members[b].key);
      return compared < 0 || (compared == 0 && a < b);
    });
    std::vector<bool> dropped(members.size());
    size_t first = order[0];  // of the members with that key
    for (size_t i = 1; i < order.size(); ++i) {
      JsonMember& member = members[order[i]];
      if (member.key != members[first].key) {
        first = order[i];
        continue;
      }
      if (options_.duplicate_keys == DuplicateKeys::kError) {
        reason_ = fmt::format("key '{}' appears twice", member.key);
        return simdjson::TAPE_ERROR;
      }
      members[first].value = std::move(member.value);
      dropped[order[i]] = true;
    }
    size_t kept = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      if (dropped[i]) continue;
      if (kept != i) members[kept] = std::move(members[i]);
      ++kept;
    }
    members.resize(kept);
    return simdjson::SUCCESS;
  }

  simdjson::error_code too_many() {
    reason_ = fmt::format("more than {} values", options_.max_values);
    return simdjson::CAPACITY;
  }

  simdjson::error_code too_deep() {
    reason_ = fmt::format("more than {} nested arrays and objects", options_.max_depth);
    return simdjson::DEPTH_ERROR;
  }

  static std::string_view trimmed(std::string_view token) {
    const size_t end = token.find_last_not_of(" \t\r\n");
    return token.substr(0, end == std::string_view::npos ? 0 : end + 1);
  }

  // Offset in the caller's text of the token being read.
  std::optional<size_t> location() {
    const char* at = nullptr;
    if (document_.current_location().get(at) || at <= padded_.data()) return std::nullopt;
    return std::min<size_t>(at - padded_.data(), padded_.size() - 1) - 1;
  }

  Error failure(simdjson::error_code error, std::optional<size_t> offset) const {
    if (error == simdjson::MEMALLOC) throw std::bad_alloc();  // no fault of the text
    const std::string_view text = std::string_view(padded_).substr(1, padded_.size() - 2);
    const std::string reason = reason_.empty() ? wording(error) : reason_;
    if (error == simdjson::UTF8_ERROR)
      return Error(Code::kInvalidArgument, "line {}: {}", utf8_line(text), reason);
    if (!offset) return Error(Code::kInvalidArgument, "{}", reason);
    const std::string_view before = text.substr(0, *offset);
    const size_t line_start = before.rfind('\n') + 1;  // npos + 1 = 0
    return Error(Code::kInvalidArgument, "line {}, column {}: {}",
                 1 + std::count(before.begin(), before.end(), '\n'), before.size() - line_start + 1, reason);
  }

  static std::string wording(simdjson::error_code error) {
    if (error == simdjson::TAPE_ERROR) return "a comma, colon, bracket or key is missing or out of place";
    if (error == simdjson::INCORRECT_TYPE) return "no JSON value";
    if (error == simdjson::STRING_ERROR) return "bad escape or control character in a string";
    if (error == simdjson::UTF8_ERROR) return "not valid UTF-8";
    if (error == simdjson::EMPTY) return "the document is empty";
    return simdjson::error_message(error);
  }

  // The first line with a broken sequence: a line feed is never part of one, so lines can be judged alone.
  static size_t utf8_line(std::string_view text) {
    size_t line = 1;
    while (!text.empty()) {
      const size_t length = std::min(text.find('\n'), text.size() - 1) + 1;
      if (!simdjson::validate_utf8(text.data(), length)) break;
      text.remove_prefix(length);
      ++line;
    }
    return line;
  }

  const JsonParseOptions& options_;
  std::string padded_;
  ondemand::parser parser_;
  ondemand::document document_;
  std::string reason_;
  size_t num_values_ = 0;
};

}  // namespace

bool is_utf8(std::string_view bytes) {
  return simdjson::validate_utf8(bytes.data(), bytes.size());
}

Result<JsonValue> parse_json(std::string_view text, const JsonParseOptions& options) {
  return TreeBuilder(text, options).build();
}

}  // namespace deepinfer
