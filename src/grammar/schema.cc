// Checks and rewrites a schema, one subschema at a time; schema_parts.h has the rest.
#include "grammar/schema.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <span>

#include "grammar/formats.h"
#include "grammar/schema_parts.h"

namespace deepinfer {
namespace {

using Object = JsonValue::Object;
using Array = JsonValue::Array;

// Keywords that are refused by name. One that is in neither list says nothing about the value, as the standard wants it.
constexpr std::string_view kRefused[] = {"not",
                                         "if",
                                         "then",
                                         "else",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies",
                                         "patternProperties",
                                         "propertyNames",
                                         "minProperties",
                                         "maxProperties",
                                         "unevaluatedProperties",
                                         "unevaluatedItems",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "additionalItems",
                                         "$dynamicRef",
                                         "$recursiveRef",
                                         "$anchor",
                                         "$dynamicAnchor"};
// Keywords that are enforced. Those that bind values of one type only name it: without a `type` beside them, that type is
// taken (implied_types).
struct Keyword {
  std::string_view name;
  std::string_view type = {};
};
constexpr Keyword kEnforced[] = {{"type"},
                                 {"enum"},
                                 {"const"},
                                 {"properties", "object"},
                                 {"required", "object"},
                                 {"additionalProperties", "object"},
                                 {"items", "array"},
                                 {"prefixItems", "array"},
                                 {"minItems", "array"},
                                 {"maxItems", "array"},
                                 {"uniqueItems", "array"},
                                 {"pattern", "string"},
                                 {"format", "string"},
                                 {"minLength", "string"},
                                 {"maxLength", "string"},
                                 {"minimum", "number"},
                                 {"maximum", "number"},
                                 {"exclusiveMinimum", "number"},
                                 {"exclusiveMaximum", "number"},
                                 {"multipleOf", "integer"},
                                 {"anyOf"},
                                 {"oneOf"},
                                 {"allOf"},
                                 {"$ref"}};
// Whole numbers have steps of this much at most, and ranges of this width (limits of the compiler).
constexpr int64_t kMaxStep = 1024, kMaxSteppedWidth = 10'000;
constexpr int64_t kMaxWhole = int64_t{1} << 53;

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
bool is_enforced(std::string_view name) {
  return std::any_of(std::begin(kEnforced), std::end(kEnforced),
                     [name](const Keyword& keyword) { return keyword.name == name; });
}

int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

class Preparer {
 public:
  Preparer(const JsonValue& root, std::string_view path, const SchemaLimits& limits)
      : root_(root), root_path_(path), limits_(limits) {}

  Result<JsonValue> run() {
    ASSIGN_OR_RETURN(JsonValue prepared, schema(root_, root_path_, 0));
    while (next_target_ < targets_.size()) {  // definitions may lead to more of them
      const Target target = targets_[next_target_++];
      ASSIGN_OR_RETURN(JsonValue definition, schema(*target.value, target.path, 0));
      definitions_.push_back(std::move(definition));
    }
    if (!prune_unsatisfiable(prepared, definitions_)) {
      return Error(Code::kInvalidArgument, "{}: no finite value satisfies this schema", root_path_);
    }
    Object definitions;
    for (size_t i = 0; i < definitions_.size(); ++i) {
      if (definitions_[i].is_null()) continue;
      definitions.push_back({std::to_string(i), std::move(definitions_[i])});
    }
    if (!definitions.empty()) prepared.object()->push_back({"$defs", std::move(definitions)});
    return prepared;
  }

 private:
  struct Target {
    const JsonValue* value;
    std::string path;
  };

  static Error bad(std::string_view path, std::string_view keyword, std::string_view what) {
    return Error(Code::kInvalidArgument, "{}: {}: {}", path, keyword, what);
  }
  static Error unsupported(std::string_view path, std::string_view keyword, std::string_view why) {
    return Error(Code::kUnimplemented, "{}: {}: {}", path, keyword, why);
  }

  Result<JsonValue> schema(const JsonValue& value, const std::string& path, int64_t depth) {
    if (depth > limits_.depth)
      return bad(path, "schema", fmt::format("nested deeper than {} levels", limits_.depth));
    if (++num_nodes_ > limits_.nodes) {
      return bad(path, "schema", fmt::format("more than {} subschemas", limits_.nodes));
    }
    if (const auto boolean = value.boolean()) return *boolean ? JsonValue(Object{}) : never();
    const Object* object = value.object();
    if (object == nullptr) {
      return bad(path, "schema", fmt::format("found {}, expected an object or a boolean", value.kind_name()));
    }
    for (const JsonMember& member : *object) {
      if (is_one_of(member.key, kRefused)) {
        return unsupported(path, member.key, "this keyword can't be enforced");
      }
    }
    if (value.find("$id") != nullptr && &value != &root_ && holds_key(value, "$ref"))
      return unsupported(path, "$id", "references from a base of its own can't be enforced");
    for (const std::string_view combiner : {"$ref", "allOf", "anyOf", "oneOf"}) {
      if (value.find(combiner) != nullptr) return combined(value, combiner, path, depth);
    }
    if (value.find("enum") != nullptr || value.find("const") != nullptr) return constants(value, path);
    return typed(value, path, depth);
  }

  // No value at all; what holds it is pruned, or an error.
  static JsonValue never() { return Object{{"anyOf", Array{}}}; }

  // ---- Combinations
  // --------------------------------------------------------------------------------------------------

  Result<JsonValue> combined(const JsonValue& value, std::string_view combiner, const std::string& path,
                             int64_t depth) {
    for (const JsonMember& member : *value.object()) {
      if (member.key == combiner || !is_enforced(member.key)) continue;
      if (member.key == "type" && combiner != "$ref") continue;  // handed to the branches
      return unsupported(path, member.key, fmt::format("can't be enforced together with {}", combiner));
    }
    if (combiner == "$ref") return reference(*value.find("$ref"), path);
    const Array* branches = value.find(combiner)->array();
    if (branches == nullptr || branches->empty()) {
      return bad(path, combiner, "expected a list of at least one schema");
    }
    if (combiner == "allOf" && branches->size() > 1) {
      return unsupported(path, combiner, "can't be enforced for more than one schema");
    }
    Array prepared, own;
    for (size_t i = 0; i < branches->size(); ++i) {
      const std::string branch_path = fmt::format("{}.{}[{}]", path, combiner, i);
      JsonValue branch = (*branches)[i];
      RETURN_IF_ERROR(hand_down_type(value, branch, branch_path));
      ASSIGN_OR_RETURN(JsonValue ready, schema(branch, branch_path, depth + 1));
      own.push_back(branch.find("$ref") == nullptr ? std::move(branch) : *target_of(ready));
      prepared.push_back(std::move(ready));
    }
    if (combiner == "oneOf") RETURN_IF_ERROR(check_disjoint(own, path));
    if (prepared.size() == 1) return std::move(prepared.front());
    return JsonValue(Object{{"anyOf", std::move(prepared)}});
  }

  // {"type": T, "anyOf": [...]}: the type goes into branches that have none; another one there is a
  // contradiction.
  Status hand_down_type(const JsonValue& outer, JsonValue& branch, const std::string& path) {
    const JsonValue* type = outer.find("type");
    if (type == nullptr || branch.object() == nullptr) return {};
    if (const JsonValue* own = branch.find("type")) {
      if (*own == *type) return {};
      return unsupported(path, "type", "can't be enforced: the schema around this branch has another type");
    }
    if (branch.find("$ref") != nullptr)
      return unsupported(path, "$ref", "can't be enforced in a branch of a schema that has a type");
    branch.object()->push_back({"type", *type});
    return {};
  }

  Result<JsonValue> reference(const JsonValue& value, const std::string& path) {
    const std::string* uri = value.string();
    if (uri == nullptr)
      return bad(path, "$ref", fmt::format("found {}, expected a string", value.kind_name()));
    if (!uri->starts_with("#"))
      return unsupported(path, "$ref", fmt::format("'{}' is outside this schema", *uri));
    const JsonValue* target = &root_;
    std::string target_path(root_path_);
    std::string_view rest = std::string_view(*uri).substr(1);
    while (!rest.empty()) {
      if (rest.front() != '/') return unsupported(path, "$ref", fmt::format("'{}' is not a JSON pointer", *uri));
      rest.remove_prefix(1);
      const size_t end = std::min(rest.find('/'), rest.size());
      const std::string key = unescaped(rest.substr(0, end));
      rest.remove_prefix(end);
      if (const Array* array = target->array()) {
        const bool digits = !key.empty() && key.size() < 9 &&
                            std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
        const size_t index = digits ? static_cast<size_t>(std::stoul(key)) : array->size();
        target = index < array->size() ? &(*array)[index] : nullptr;
      } else {
        target = target->find(key);
      }
      if (target == nullptr) return bad(path, "$ref", fmt::format("'{}' does not exist", *uri));
      if (const JsonValue* id = rest.empty() ? nullptr : target->find("$id"); id != nullptr && id->string() != nullptr)
        return unsupported(path, "$ref", fmt::format("'{}' is inside a schema with its own $id", *uri));
      target_path += "." + key;
    }
    const auto [known, is_new] = target_ids_.emplace(target, targets_.size());
    if (is_new) targets_.push_back({target, target_path});
    return JsonValue(Object{{"$ref", fmt::format("#/$defs/{}", known->second)}});
  }

  // JSON pointer: ~1 is /, ~0 is ~, %XX is a byte.
  static std::string unescaped(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '~' && i + 1 < text.size() && (text[i + 1] == '0' || text[i + 1] == '1')) {
        out += text[++i] == '0' ? '~' : '/';
      } else if (text[i] == '%' && i + 2 < text.size() &&
                 std::isxdigit(static_cast<unsigned char>(text[i + 1])) != 0 &&
                 std::isxdigit(static_cast<unsigned char>(text[i + 2])) != 0) {
        out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
        i += 2;
      } else {
        out += text[i];
      }
    }
    return out;
  }

  // A grammar can't see that a value fits one branch and no other, so no two may have a value in common: of the client's
  // own branches, since the prepared ones may be narrower.
  Status check_disjoint(const Array& branches, const std::string& path) const {
    for (size_t i = 0; i < branches.size(); ++i) {
      for (size_t j = i + 1; j < branches.size(); ++j) {
        if (told_apart(branches[i], branches[j])) continue;
        return unsupported(
            path, "oneOf",
            fmt::format("branches {} and {} do not differ by a type or a constant; use anyOf", i, j));
      }
    }
    return {};
  }

  // What the client wrote where a prepared reference leads.
  const JsonValue* target_of(const JsonValue& reference) const {
    return targets_[std::stoul(reference.find("$ref")->string()->substr(8))].value;
  }

  // ---- Constants
  // -----------------------------------------------------------------------------------------------------

  Result<JsonValue> constants(const JsonValue& value, const std::string& path) {
    const std::string_view keyword = value.find("enum") != nullptr ? "enum" : "const";
    Array values;
    if (keyword == "enum") {
      const Array* list = value.find("enum")->array();
      if (list == nullptr || list->empty()) return bad(path, "enum", "expected a list of at least one value");
      if (std::ssize(*list) > limits_.enum_values) {
        return bad(path, "enum",
                   fmt::format("found {} values, expected at most {}", list->size(), limits_.enum_values));
      }
      values = *list;
    } else {
      values.push_back(*value.find("const"));
    }
    for (const JsonMember& member : *value.object()) {
      if (!is_enforced(member.key) || member.key == "enum" || member.key == "const") continue;
      constexpr std::string_view kPlain[] = {
          "type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"};
      if (!is_one_of(member.key, kPlain))
        return unsupported(path, member.key, fmt::format("can't be enforced together with {}", keyword));
    }
    if (const JsonValue* both = keyword == "enum" ? value.find("const") : nullptr) {
      std::erase_if(values, [&](const JsonValue& one) { return !equal_constants(one, *both); });
    }
    std::erase_if(values, [&](const JsonValue& one) { return !is_plain_match(one, value); });
    if (values.empty()) return bad(path, keyword, "no value satisfies the other keywords");
    for (const JsonValue& one : values) {
      if (is_rounded(one)) return unsupported(path, keyword, "whole numbers beyond 64 bits can't be enforced");
      enum_bytes_ += std::ssize(to_json(one));
      if (enum_bytes_ > limits_.enum_bytes)
        return bad(path, keyword, fmt::format("the constants take more than {} bytes", limits_.enum_bytes));
    }
    return JsonValue(Object{{"enum", std::move(values)}});
  }

  // ---- Types
  // ---------------------------------------------------------------------------------------------------------

  Result<JsonValue> typed(const JsonValue& value, const std::string& path, int64_t depth) {
    ASSIGN_OR_RETURN(const std::vector<std::string> types, type_names(value, path));
    Array prepared;
    for (const std::string& type : types) {
      ASSIGN_OR_RETURN(JsonValue one, of_type(type, value, path, depth));
      prepared.push_back(std::move(one));
    }
    if (prepared.size() == 1) return std::move(prepared.front());
    return JsonValue(Object{{"anyOf", std::move(prepared)}});
  }

  Result<std::vector<std::string>> type_names(const JsonValue& value, const std::string& path) {
    std::vector<std::string> names;
    const JsonValue* type = value.find("type");
    if (type == nullptr) return implied_types(value, path);
    const Array one = {*type};
    const Array* list = type->array() != nullptr ? type->array() : &one;
    for (const JsonValue& name : *list) {
      if (name.string() == nullptr || !is_one_of(*name.string(), kSchemaTypes)) {
        return bad(path, "type",
                   fmt::format("found {}, expected one of null, boolean, integer, number, string, array, "
                               "object or a list of them",
                               to_json(name)));
      }
      if (std::find(names.begin(), names.end(), *name.string()) == names.end())
        names.push_back(*name.string());
    }
    if (names.empty()) return bad(path, "type", "expected at least one type");
    // An integer is a number already.
    if (std::find(names.begin(), names.end(), "number") != names.end()) std::erase(names, "integer");
    return names;
  }

  // Without a type, keywords bind only values of theirs; then the type that they speak of is taken.
  Result<std::vector<std::string>> implied_types(const JsonValue& value, const std::string& path) {
    std::vector<std::string> names;
    for (const auto& [keyword, type] : kEnforced) {
      if (type.empty() || value.find(keyword) == nullptr) continue;
      if (names.empty()) names.emplace_back(type);
      if (names.front() != type)
        return unsupported(path, keyword, "keywords of several types can't be enforced without `type`");
    }
    if (names.empty()) names.emplace_back("any");
    return names;
  }

  Result<JsonValue> of_type(const std::string& type, const JsonValue& value, const std::string& path,
                            int64_t depth) {
    if (type == "any") return JsonValue(Object{});
    if (type == "null" || type == "boolean") return JsonValue(Object{{"type", type}});
    if (type == "integer") return whole_number(value, path);
    if (type == "number") return number(value, path);
    if (type == "string") return string(value, path);
    if (type == "array") return array(value, path, depth);
    return object(value, path, depth);
  }

  Result<std::optional<double>> bound(const JsonValue& value, std::string_view keyword,
                                      const std::string& path) {
    const JsonValue* found = value.find(keyword);
    if (found == nullptr) return std::optional<double>();
    if (!found->number())
      return bad(path, keyword, fmt::format("found {}, expected a number", found->kind_name()));
    return found->number();
  }
  Result<std::optional<int64_t>> count(const JsonValue& value, std::string_view keyword,
                                       const std::string& path, int64_t most) {
    const JsonValue* found = value.find(keyword);
    if (found == nullptr) return std::optional<int64_t>();
    const std::optional<double> number = found->number();
    if (!number || *number < 0 || std::floor(*number) != *number) {
      return bad(path, keyword, fmt::format("found {}, expected a non-negative integer", to_json(*found)));
    }
    if (*number > static_cast<double>(most))
      return bad(path, keyword, fmt::format("found {}, expected at most {}", to_json(*found), most));
    return std::optional<int64_t>(static_cast<int64_t>(*number));
  }

  Result<JsonValue> whole_number(const JsonValue& value, const std::string& path) {
    int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
    bool has_low = false, has_high = false;
    for (const auto& [keyword, is_low, open] :
         {std::tuple("minimum", true, false), std::tuple("exclusiveMinimum", true, true),
          std::tuple("maximum", false, false), std::tuple("exclusiveMaximum", false, true)}) {
      ASSIGN_OR_RETURN(const auto found, bound(value, keyword, path));
      if (!found) continue;
      if (std::abs(*found) > static_cast<double>(kMaxWhole)) {
        return unsupported(path, keyword, "integer bounds beyond 2^53 can't be enforced");
      }
      const double inner = is_low ? (open ? std::floor(*found) + 1 : std::ceil(*found))
                                  : (open ? std::ceil(*found) - 1 : std::floor(*found));
      const auto edge = static_cast<int64_t>(inner);
      is_low ? low = std::max(low, edge) : high = std::min(high, edge);
      (is_low ? has_low : has_high) = true;
    }
    if (low > high) return bad(path, has_low ? "minimum" : "maximum", "no integer lies between the bounds");
    Object out = {{"type", "integer"}};
    if (has_low) out.push_back({"minimum", low});
    if (has_high) out.push_back({"maximum", high});
    if (const JsonValue* step = value.find("multipleOf")) {
      const auto number = step->number();
      if (!number || !(*number > 0))
        return bad(path, "multipleOf", fmt::format("found {}, expected a number above 0", to_json(*step)));
      if (std::floor(*number) != *number || *number > kMaxStep) {
        return unsupported(
            path, "multipleOf",
            fmt::format("only integers up to {} can be enforced", kMaxStep));
      }
      if (has_low != has_high || (has_low && high - low > kMaxSteppedWidth)) {
        return unsupported(
            path, "multipleOf",
            fmt::format("with bounds, it can be enforced only if both are given and at most {} apart",
                        kMaxSteppedWidth));
      }
      const auto whole = static_cast<int64_t>(*number);
      const int64_t last = high / whole * whole - (high % whole < 0 ? whole : 0);  // the greatest up to `high`
      if (has_low && last < low) {
        return bad(path, "multipleOf", "no multiple lies between the bounds");
      }
      out.push_back({"multipleOf", whole});
    }
    return JsonValue(std::move(out));
  }

  Result<JsonValue> number(const JsonValue& value, const std::string& path) {
    if (value.find("multipleOf") != nullptr)
      return unsupported(path, "multipleOf", "it can be enforced for integers only");
    Object out = {{"type", "number"}};
    for (const auto& [keyword, open] :
         {std::pair("minimum", false), std::pair("exclusiveMinimum", true), std::pair("maximum", false),
          std::pair("exclusiveMaximum", true)}) {
      ASSIGN_OR_RETURN(const auto found, bound(value, keyword, path));
      if (!found) continue;
      if (!is_enforceable_bound(*found, open)) {
        return unsupported(path, keyword,
                           "bounds from 10^15 on and exclusive ones of more than 15 digits can't be enforced");
      }
      out.push_back({keyword, *found});
    }
    JsonValue number(std::move(out));
    if (numbers_in(number_range(number)).empty()) return bad(path, "minimum", "no number lies between the bounds");
    return number;
  }

  Result<JsonValue> string(const JsonValue& value, const std::string& path) {
    ASSIGN_OR_RETURN(const auto shortest, count(value, "minLength", path, limits_.length));
    ASSIGN_OR_RETURN(const auto longest, count(value, "maxLength", path, limits_.length));
    if (shortest && longest && *shortest > *longest) return bad(path, "minLength", "it is greater than maxLength");
    const JsonValue* pattern = value.find("pattern");
    const JsonValue* format = value.find("format");
    Object out = {{"type", "string"}};
    if (pattern != nullptr) {
      if (pattern->string() == nullptr)
        return bad(path, "pattern", fmt::format("found {}, expected a string", pattern->kind_name()));
      if (format != nullptr) return unsupported(path, "format", "can't be enforced together with pattern");
      const Result<std::string> read = prepare_pattern(*pattern->string(), {.in_json = true}, limits_);
      if (!read.ok()) return read.error().in(path);
      out.push_back({"pattern", *pattern});
    }
    if (format != nullptr) {
      if (format->string() == nullptr)
        return bad(path, "format", fmt::format("found {}, expected a string", format->kind_name()));
      const std::optional<std::string_view> plain = pattern_of_format(*format->string());
      if (!plain)
        return unsupported(
            path, "format",
            fmt::format("'{}' can't be enforced; expected one of {}", *format->string(), format_names()));
      out.push_back({"pattern", *plain});
    }
    if (shortest.value_or(0) > 0 || longest) {
      if (out.size() > 1)
        return unsupported(path, shortest ? "minLength" : "maxLength",
                           "can't be enforced together with pattern or format");
      if (shortest) out.push_back({"minLength", *shortest});
      if (longest) out.push_back({"maxLength", *longest});
    }
    return JsonValue(std::move(out));
  }

  Result<JsonValue> array(const JsonValue& value, const std::string& path, int64_t depth) {
    ASSIGN_OR_RETURN(const auto fewest, count(value, "minItems", path, limits_.items));
    ASSIGN_OR_RETURN(const auto most, count(value, "maxItems", path, limits_.items));
    if (fewest && most && *fewest > *most) return bad(path, "minItems", "it is greater than maxItems");
    if (const JsonValue* unique = value.find("uniqueItems");
        unique != nullptr && unique->boolean().value_or(true)) {
      return unsupported(path, "uniqueItems", "this can't be enforced");
    }
    Object out = {{"type", "array"}};
    const JsonValue* first = value.find("prefixItems");
    int64_t num_first = 0;
    if (first != nullptr) {
      if (first->array() == nullptr || first->array()->empty())
        return bad(path, "prefixItems", "expected a list of at least one schema");
      Array prepared;
      for (const JsonValue& one : *first->array()) {
        ASSIGN_OR_RETURN(JsonValue ready,
                         schema(one, fmt::format("{}.prefixItems[{}]", path, num_first), depth + 1));
        prepared.push_back(std::move(ready));
        ++num_first;
      }
      if (most && *most < num_first)
        return unsupported(path, "maxItems", "it can't be enforced below the number of prefixItems");
      out.push_back({"prefixItems", std::move(prepared)});
    }
    const JsonValue* items = value.find("items");
    const bool closed = items != nullptr ? !items->boolean().value_or(true)
                                         : first != nullptr && fewest.value_or(0) <= num_first;
    if (closed) {
      if (fewest.value_or(0) > num_first) return bad(path, "minItems", "no further items are allowed");
      if (first == nullptr) {
        out.push_back({"items", Object{}});
        out.push_back({"maxItems", 0});
        return JsonValue(std::move(out));
      }
      out.push_back({"items", false});
      if (fewest) out.push_back({"minItems", *fewest});
      return JsonValue(std::move(out));
    }
    JsonValue ready{Object{}};
    if (items != nullptr) {
      ASSIGN_OR_RETURN(ready, schema(*items, path + ".items", depth + 1));
    }
    out.push_back({"items", std::move(ready)});
    if (fewest) out.push_back({"minItems", *fewest});
    if (most) out.push_back({"maxItems", *most});
    return JsonValue(std::move(out));
  }

  Result<JsonValue> object(const JsonValue& value, const std::string& path, int64_t depth) {
    Object properties;
    if (const JsonValue* declared = value.find("properties")) {
      if (declared->object() == nullptr)
        return bad(path, "properties", fmt::format("found {}, expected an object", declared->kind_name()));
      if (std::ssize(*declared->object()) > limits_.properties) {
        return bad(
            path, "properties",
            fmt::format("found {}, expected at most {}", declared->object()->size(), limits_.properties));
      }
      for (const JsonMember& member : *declared->object()) {
        ASSIGN_OR_RETURN(JsonValue ready,
                         schema(member.value, fmt::format("{}.properties.{}", path, member.key), depth + 1));
        properties.push_back({member.key, std::move(ready)});
      }
    }
    const JsonValue* others = value.find("additionalProperties");
    // Left open, an object with declared properties is held to them; one without any may have all.
    bool open = others == nullptr ? properties.empty() : others->boolean().value_or(true);
    JsonValue other{Object{}};
    if (others != nullptr && !others->boolean()) {
      ASSIGN_OR_RETURN(other, schema(*others, path + ".additionalProperties", depth + 1));
    }
    Array required;
    if (const JsonValue* names = value.find("required")) {
      if (names->array() == nullptr) return bad(path, "required", "expected a list of property names");
      if (std::ssize(*names->array()) > limits_.properties)
        return bad(
            path, "required",
            fmt::format("found {} names, expected at most {}", names->array()->size(), limits_.properties));
      for (const JsonValue& name : *names->array()) {
        if (name.string() == nullptr) return bad(path, "required", "expected a list of property names");
        if (std::find(required.begin(), required.end(), name) != required.end()) continue;
        const bool declared =
            std::any_of(properties.begin(), properties.end(),
                        [&](const JsonMember& member) { return member.key == *name.string(); });
        if (!declared) {
          if (others != nullptr && !open)
            return bad(path, "required",
                       fmt::format("'{}' is not a declared property, and no others are allowed", *name.string()));
          if (std::ssize(properties) >= limits_.properties) return bad(path, "required", "too many names");
          properties.push_back({*name.string(), other});
          if (others == nullptr) open = false;
        }
        required.push_back(name);
      }
    }
    Object out = {{"type", "object"}};
    if (!properties.empty()) out.push_back({"properties", std::move(properties)});
    if (!required.empty()) out.push_back({"required", std::move(required)});
    if (open) {
      out.push_back({"additionalProperties", std::move(other)});
    } else {
      out.push_back({"additionalProperties", false});
    }
    return JsonValue(std::move(out));
  }

  const JsonValue& root_;
  const std::string root_path_;
  const SchemaLimits& limits_;
  int64_t num_nodes_ = 0;
  int64_t enum_bytes_ = 0;
  std::map<const JsonValue*, size_t> target_ids_;
  std::vector<Target> targets_;
  size_t next_target_ = 0;
  std::vector<JsonValue> definitions_;
};

}  // namespace

Result<JsonValue> prepare_schema(const JsonValue& schema, std::string_view path, const SchemaLimits& limits) {
  return Preparer(schema, path, limits).run();
}

bool is_plain_match(const JsonValue& value, const JsonValue& schema) {
  if (const JsonValue* type = schema.find("type")) {
    const Array one = {*type};
    const Array& types = type->array() != nullptr ? *type->array() : one;
    const bool fits = std::any_of(types.begin(), types.end(), [&](const JsonValue& name) {
      return name.string() != nullptr && has_type(value, *name.string());
    });
    if (!fits) return false;
  }
  const auto limit = [&schema](std::string_view keyword) {
    const JsonValue* found = schema.find(keyword);
    return found == nullptr ? std::optional<double>() : found->number();
  };
  const auto bound = [&schema](std::string_view keyword) {
    const JsonValue* found = schema.find(keyword);
    return found == nullptr ? std::optional<long double>() : exact_number(*found);
  };
  if (const std::optional<long double> number = exact_number(value)) {
    if (const auto low = bound("minimum"); low && *number < *low) return false;
    if (const auto high = bound("maximum"); high && *number > *high) return false;
    if (const auto low = bound("exclusiveMinimum"); low && *number <= *low) return false;
    if (const auto high = bound("exclusiveMaximum"); high && *number >= *high) return false;
  }
  if (const std::string* text = value.string()) {
    const auto length = static_cast<double>(num_characters(*text));
    if (const auto low = limit("minLength"); low && length < *low) return false;
    if (const auto high = limit("maxLength"); high && length > *high) return false;
  }
  return true;
}

}  // namespace deepinfer
