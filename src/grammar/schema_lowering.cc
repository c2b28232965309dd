// From what a schema means to what the compiler takes to the letter. It reads "format": "deepinfer" as: the pattern is an
// expression of the value itself, without quotes (cmake/xgrammar.cmake).
#include <algorithm>

#include "grammar/schema.h"
#include "grammar/schema_parts.h"

namespace deepinfer {
namespace {

using Object = JsonValue::Object;
using Array = JsonValue::Array;

JsonValue value_like(std::string expression) {
  return Object{{"type", "string"}, {"format", "deepinfer"}, {"pattern", std::move(expression)}};
}

// What the compiler would print otherwise: it knows 64 bits with a sign, and prints fractions with 17 digits.
bool holds_other_numbers(const JsonValue& value) {
  if (value.number()) return !value.int64();
  if (const Array* array = value.array()) return std::any_of(array->begin(), array->end(), holds_other_numbers);
  return value.object() != nullptr &&
         std::any_of(value.object()->begin(), value.object()->end(),
                     [](const JsonMember& member) { return holds_other_numbers(member.value); });
}

// "｜" can be written as an escape.
std::string constant_text(const JsonValue& value, bool in_call) {
  constexpr std::string_view kBar = "｜";
  std::string text = to_json(value);
  for (size_t at = 0; in_call && (at = text.find(kBar, at)) != std::string::npos;) text.replace(at, kBar.size(), "\\uff5c");
  return text;
}

class Lowering {
 public:
  explicit Lowering(bool in_call) : in_call_(in_call) {}

  JsonValue run(const JsonValue& schema) const {
    if (schema.object() == nullptr) return schema;
    if (schema.find("enum") != nullptr) return constants(*schema.find("enum")->array());
    if (const JsonValue* type = schema.find("type")) {
      if (*type == JsonValue("number") || *type == JsonValue("integer")) return number(schema);
      if (*type == JsonValue("string")) return string(schema);
    }
    Object out;
    for (const JsonMember& member : *schema.object()) {
      const bool holds_schemas = member.key == "anyOf" || member.key == "prefixItems" || member.key == "properties" ||
                                 member.key == "$defs";
      const bool is_schema = member.key == "items" || member.key == "additionalProperties";
      out.push_back({member.key, is_schema ? run(member.value) : holds_schemas ? each(member.value) : member.value});
    }
    name_others(schema, out);
    return out;
  }

 private:
  JsonValue each(const JsonValue& schemas) const {
    if (const Array* list = schemas.array()) {
      Array out;
      for (const JsonValue& one : *list) out.push_back(run(one));
      return out;
    }
    Object out;
    for (const JsonMember& member : *schemas.object()) out.push_back({member.key, run(member.value)});
    return out;
  }

  JsonValue constants(const Array& values) const {
    Array plain, ways;
    for (const JsonValue& one : values) {
      const std::string text = constant_text(one, in_call_);
      if (holds_other_numbers(one) || text != to_json(one)) {
        ways.push_back(value_like(literal(text)));
      } else {
        plain.push_back(one);
      }
    }
    if (!plain.empty()) ways.insert(ways.begin(), Object{{"enum", std::move(plain)}});
    if (ways.size() == 1) return std::move(ways.front());
    return Object{{"anyOf", std::move(ways)}};
  }

  static JsonValue number(const JsonValue& schema) {
    const NumberRange range = number_range(schema);
    const bool is_plain = !range.low && !range.high;
    if (is_plain || schema.find("multipleOf") != nullptr) return schema;
    return value_like(numbers_in(range));
  }

  JsonValue string(const JsonValue& schema) const {
    const TextPlace place = {.in_json = true, .in_call = in_call_};
    if (const JsonValue* pattern = schema.find("pattern")) {
      const Result<std::string> read = prepare_pattern(*pattern->string(), place);
      CHECK(read.ok());  // it was when the schema was prepared
      return Object{{"type", "string"}, {"pattern", *read}};
    }
    const JsonValue* shortest = schema.find("minLength");
    const JsonValue* longest = schema.find("maxLength");
    if (shortest == nullptr && longest == nullptr) return schema;
    const int64_t fewest = shortest == nullptr ? 0 : *shortest->int64();
    std::optional<int64_t> most;
    if (longest != nullptr) most = *longest->int64();
    if (std::max(fewest, most.value_or(0)) > kMostCounted) return schema;
    return Object{{"type", "string"}, {"pattern", any_text(fewest, most, place)}};
  }

  // Beside declared properties, names that are none of them in any spelling.
  void name_others(const JsonValue& schema, Object& out) const {
    const JsonValue* properties = schema.find("properties");
    const JsonValue* others = schema.find("additionalProperties");
    if (properties == nullptr || properties->object() == nullptr || others == nullptr || others->boolean()) return;
    std::vector<std::string> names;
    for (const JsonMember& member : *properties->object()) names.push_back(member.key);
    out.push_back({"propertyNames", Object{{"type", "string"},
                                           {"pattern", other_than(names, {.in_json = true, .in_call = in_call_})}}});
  }

  const bool in_call_;
};

}  // namespace

NumberRange number_range(const JsonValue& schema) {
  NumberRange range;
  range.whole = *schema.find("type") == JsonValue("integer");
  const auto bound = [&schema](std::string_view keyword) {
    const JsonValue* found = schema.find(keyword);
    return found == nullptr ? std::optional<double>() : found->number();
  };
  range.low = bound("minimum");
  range.high = bound("maximum");
  if (const auto low = bound("exclusiveMinimum"); low && (!range.low || *low >= *range.low)) {
    range.low = low;
    range.low_open = true;
  }
  if (const auto high = bound("exclusiveMaximum"); high && (!range.high || *high <= *range.high)) {
    range.high = high;
    range.high_open = true;
  }
  return range;
}

JsonValue lowered_schema(const JsonValue& prepared, bool in_call) { return Lowering(in_call).run(prepared); }

}  // namespace deepinfer
