// What prepare_schema() does with values and prepared schemas in between. Private to the room.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "grammar/expression.h"
#include "json/json.h"

namespace deepinfer {

inline constexpr std::array<std::string_view, 7> kSchemaTypes = {"null",   "boolean", "integer", "number",
                                                                 "string", "array",   "object"};

// The type that the standard gives a value; a whole double is an integer too.
bool has_type(const JsonValue& value, std::string_view type);
// Of a number, without rounding.
std::optional<long double> exact_number(const JsonValue& value);
// Whether it is or holds a whole number beyond 64 bits, which was rounded when it was read.
bool is_rounded(const JsonValue& value);
// As the standard compares constants: 1 is 1.0, and the order of names means nothing.
bool equal_constants(const JsonValue& a, const JsonValue& b);

// Whether `name` is a member anywhere in the value.
bool holds_key(const JsonValue& value, std::string_view name);
// Of a prepared number, with or without bounds.
NumberRange number_range(const JsonValue& schema);

// Whether no value can satisfy both, seen by types, constants, or a required property that tells them apart.
// False where that isn't seen.
bool told_apart(const JsonValue& a, const JsonValue& b);

// Takes out of a prepared schema and its definitions (which "#/$defs/N" leads to) what no finite value
// satisfies; such definitions become null. False: nothing satisfies the schema, and all is as it was.
bool prune_unsatisfiable(JsonValue& schema, std::vector<JsonValue>& definitions);

}  // namespace deepinfer
