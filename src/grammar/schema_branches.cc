// Which type a value has, and whether two branches have a value in common.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>

#include "grammar/schema_parts.h"

namespace deepinfer {

using Array = JsonValue::Array;

bool has_type(const JsonValue& value, std::string_view type) {
  switch (value.kind()) {
    case JsonValue::Kind::kNull:
      return type == "null";
    case JsonValue::Kind::kBool:
      return type == "boolean";
    case JsonValue::Kind::kInt64:
    case JsonValue::Kind::kUint64:
      return type == "integer" || type == "number";
    case JsonValue::Kind::kDouble:
      return type == "number" || (type == "integer" && std::floor(*value.number()) == *value.number());
    case JsonValue::Kind::kString:
      return type == "string";
    case JsonValue::Kind::kArray:
      return type == "array";
    case JsonValue::Kind::kObject:
      return type == "object";
  }
  return false;
}

// 64 bits of mantissa hold every integer that a value can hold.
std::optional<long double> exact_number(const JsonValue& value) {
  if (const auto whole = value.int64()) return static_cast<long double>(*whole);
  if (const auto whole = value.uint64()) return static_cast<long double>(*whole);
  if (const auto number = value.number()) return static_cast<long double>(*number);
  return std::nullopt;
}

bool is_rounded(const JsonValue& value) {
  if (value.kind() == JsonValue::Kind::kDouble) return std::abs(*value.number()) >= 0x1p63;
  if (const Array* array = value.array()) return std::any_of(array->begin(), array->end(), is_rounded);
  return value.object() != nullptr &&
         std::any_of(value.object()->begin(), value.object()->end(),
                     [](const JsonMember& member) { return is_rounded(member.value); });
}

bool equal_constants(const JsonValue& a, const JsonValue& b) {
  if (a.number() && b.number()) return exact_number(a) == exact_number(b);
  if (a.array() != nullptr && b.array() != nullptr)
    return std::equal(a.array()->begin(), a.array()->end(), b.array()->begin(), b.array()->end(), equal_constants);
  if (a.object() == nullptr || b.object() == nullptr) return a == b;
  return a.object()->size() == b.object()->size() &&
         std::all_of(a.object()->begin(), a.object()->end(), [&b](const JsonMember& member) {
           const JsonValue* other = b.find(member.key);
           return other != nullptr && equal_constants(member.value, *other);
         });
}

bool holds_key(const JsonValue& value, std::string_view name) {
  if (const Array* array = value.array())
    return std::any_of(array->begin(), array->end(), [&](const JsonValue& one) { return holds_key(one, name); });
  return value.object() != nullptr &&
         std::any_of(value.object()->begin(), value.object()->end(), [&](const JsonMember& member) {
           return member.key == name || holds_key(member.value, name);
         });
}

namespace {

std::optional<Array> constants_of(const JsonValue& schema) {
  if (const JsonValue* constant = schema.find("const")) return Array{*constant};
  const JsonValue* values = schema.find("enum");
  if (values != nullptr && values->array() != nullptr) return *values->array();
  return std::nullopt;
}
std::set<std::string> types_of(const JsonValue& schema) {
  std::set<std::string> types;
  const JsonValue* type = schema.find("type");
  if (type != nullptr && type->string() != nullptr) types.insert(*type->string());
  if (type != nullptr && type->array() != nullptr) {
    for (const JsonValue& one : *type->array()) types.insert(one.string() != nullptr ? *one.string() : "");
  }
  if (const auto constants = constants_of(schema); constants && types.empty()) {
    for (const JsonValue& one : *constants) {
      for (const std::string_view name : kSchemaTypes) {
        if (has_type(one, name)) types.insert(std::string(name));
      }
    }
  }
  if (types.empty()) types.insert(kSchemaTypes.begin(), kSchemaTypes.end());
  if (types.count("number") != 0) types.insert("integer");
  return types;
}

bool requires_property(const JsonValue& schema, const std::string& name) {
  const JsonValue* required = schema.find("required");
  return required != nullptr && required->array() != nullptr &&
         std::any_of(required->array()->begin(), required->array()->end(),
                     [&](const JsonValue& one) { return one.string() != nullptr && *one.string() == name; });
}

bool told_apart_at(const JsonValue& a, const JsonValue& b, int depth) {
  for (const std::string_view keyword : {"$ref", "anyOf", "oneOf", "allOf"}) {
    if (depth > 4 || a.find(keyword) != nullptr || b.find(keyword) != nullptr) return false;
  }
  const auto types_a = types_of(a), types_b = types_of(b);
  if (std::none_of(types_a.begin(), types_a.end(), [&](const auto& type) { return types_b.count(type) != 0; }))
    return true;
  const auto values_a = constants_of(a), values_b = constants_of(b);
  if (values_a && values_b) {
    return std::none_of(values_a->begin(), values_a->end(), [&](const JsonValue& one) {
      return std::any_of(values_b->begin(), values_b->end(),
                         [&](const JsonValue& other) { return equal_constants(one, other); });
    });
  }
  const JsonValue* required = a.find("required");
  const JsonValue* properties_a = a.find("properties");
  const JsonValue* properties_b = b.find("properties");
  if (required == nullptr || required->array() == nullptr || properties_a == nullptr || properties_b == nullptr ||
      types_a != std::set<std::string>{"object"} || types_b != types_a) {
    return false;
  }
  return std::any_of(required->array()->begin(), required->array()->end(), [&](const JsonValue& name) {
    if (name.string() == nullptr || !requires_property(b, *name.string())) return false;
    const JsonValue* of_a = properties_a->find(*name.string());
    const JsonValue* of_b = properties_b->find(*name.string());
    return of_a != nullptr && of_b != nullptr && told_apart_at(*of_a, *of_b, depth + 1);
  });
}

}  // namespace

bool told_apart(const JsonValue& a, const JsonValue& b) {
  return told_apart_at(a, b, 0);
}

}  // namespace deepinfer
