// What an answer must be: response formats of the protocols, and the fields of other servers
// (docs/structured-outputs.md).
#include <initializer_list>

#include "api/fields.h"
#include "api/request_fields.h"

namespace deepinfer {
namespace {

using Kind = OutputGrammar::Kind;

Status set_grammar(OutputGrammar grammar, GenerationRequest& request) {
  if (request.grammar) {
    return Error(Code::kInvalidArgument, "{} and {}: found two grammars, expected one", request.grammar->path,
                 grammar.path);
  }
  request.grammar = std::move(grammar);
  return {};
}

// A schema or a tag, as an object or as its JSON text.
Result<JsonValue> json_or_text(const JsonRef& field) {
  if (!field.present()) return missing_field(field);
  const std::string* text = field.value()->string();
  if (text == nullptr) return *field.value();
  Result<JsonValue> value = parse_json(*text);
  if (!value.ok())
    return Error(Code::kInvalidArgument, "invalid request body: {}: {}", field.path(),
                 value.error().message());
  return value;
}

Status set_schema(const JsonRef& field, GenerationRequest& request) {
  ASSIGN_OR_RETURN(JsonValue schema, json_or_text(field));
  return set_grammar({.kind = Kind::kJsonSchema, .value = std::move(schema), .path = field.path()}, request);
}

Status set_text(Kind kind, const JsonRef& field, GenerationRequest& request) {
  ASSIGN_OR_RETURN(std::string text, required_string(field));
  return set_grammar({.kind = kind, .text = std::move(text), .path = field.path()}, request);
}

Status set_choice(const JsonRef& field, GenerationRequest& request) {
  OutputGrammar grammar = {.kind = Kind::kChoice, .path = field.path()};
  ASSIGN_OR_RETURN(const auto elements, required_array(field));
  for (const JsonRef& element : elements) {
    ASSIGN_OR_RETURN(std::string choice, required_string(element));
    grammar.choices.push_back(std::move(choice));
  }
  return set_grammar(std::move(grammar), request);
}

Status set_tag(const JsonRef& field, GenerationRequest& request) {
  ASSIGN_OR_RETURN(JsonValue tag, json_or_text(field));
  return set_grammar({.kind = Kind::kStructuralTag, .value = std::move(tag), .path = field.path()}, request);
}

// {"json" | "regex" | "choice" | "grammar" | "json_object" | "structural_tag": ...}
Status parse_structured_outputs(const JsonRef& field, GenerationRequest& request) {
  if (!given(field)) return {};
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  if (given(field["whitespace_pattern"])) {
    return unsupported(field["whitespace_pattern"].path(), "JSON is written with the library's own white space");
  }
  for (const char* name : {"disable_any_whitespace", "disable_additional_properties"}) {
    ASSIGN_OR_RETURN(const bool asked, boolean_or(field[name], false));
    if (asked) return unsupported(field[name].path(), "say it in the schema (additionalProperties)");
  }
  if (given(field["json"])) RETURN_IF_ERROR(set_schema(field["json"], request));
  if (given(field["regex"])) RETURN_IF_ERROR(set_text(Kind::kRegex, field["regex"], request));
  if (given(field["choice"])) RETURN_IF_ERROR(set_choice(field["choice"], request));
  if (given(field["grammar"])) RETURN_IF_ERROR(set_text(Kind::kEbnf, field["grammar"], request));
  if (given(field["structural_tag"])) RETURN_IF_ERROR(set_tag(field["structural_tag"], request));
  ASSIGN_OR_RETURN(const bool json_object, boolean_or(field["json_object"], false));
  if (json_object)
    return set_grammar({.kind = Kind::kJsonObject, .path = field["json_object"].path()}, request);
  if (request.grammar) return {};
  return Error(
      Code::kInvalidArgument,
      "invalid request body: {}: expected one of json, regex, choice, grammar, json_object, structural_tag",
      field.path());
}

Result<TokenId> token_id(const JsonRef& field) {
  ASSIGN_OR_RETURN(const int64_t id, integer_field(field));
  if (id < 0 || id > INT32_MAX) return out_of_range(field.path(), "[0, 2147483647]");
  return static_cast<TokenId>(id);
}

// {"schema_type": "json" | "regex" | "ebnf", "schema": TEXT, "trigger_token_ids": [...], "bound_token_id":
// id}
Status parse_so_args(const JsonRef& field, GenerationRequest& request) {
  if (!given(field)) return {};
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  ASSIGN_OR_RETURN(const std::string type, required_string(field["schema_type"]));
  if (type == "json") {
    RETURN_IF_ERROR(set_schema(field["schema"], request));
  } else if (type == "regex" || type == "ebnf") {
    RETURN_IF_ERROR(set_text(type == "regex" ? Kind::kRegex : Kind::kEbnf, field["schema"], request));
  } else {
    return Error(Code::kInvalidArgument,
                 "invalid request body: {}: unknown variant `{}`, expected one of `json`, `regex`, `ebnf`",
                 field["schema_type"].path(), type);
  }
  if (given(field["trigger_token_ids"])) {
    ASSIGN_OR_RETURN(const auto ids, required_array(field["trigger_token_ids"]));
    for (const JsonRef& id : ids) {
      ASSIGN_OR_RETURN(const TokenId trigger, token_id(id));
      request.trigger_ids.push_back(trigger);
    }
  }
  if (!given(field["bound_token_id"])) return {};
  if (request.trigger_ids.empty()) {
    return Error(Code::kInvalidArgument, "invalid request body: {}: it requires trigger_token_ids",
                 field["bound_token_id"].path());
  }
  ASSIGN_OR_RETURN(request.bound_id, token_id(field["bound_token_id"]));
  return {};
}

}  // namespace

Status parse_response_format(const JsonRef& field, GenerationRequest& request) {
  if (!given(field)) return {};
  if (const auto object = field.object(); !object.ok()) return invalid_body(object.error());
  ASSIGN_OR_RETURN(const std::string type, required_string(field["type"]));
  ResponseFormat& shown = request.conversation.response_format;
  if (type == "text") return {};
  if (type == "json_object") {
    shown.kind = ResponseFormat::Kind::kJsonObject;
    return set_grammar({.kind = Kind::kJsonObject, .path = field.path()}, request);
  }
  if (type == "json_schema") {
    const JsonRef nested = field["json_schema"];
    const JsonRef schema = given(nested) ? nested["schema"] : field["schema"];
    if (!given(schema)) return missing_field(schema);
    if (schema.value()->object() == nullptr && !schema.value()->boolean()) {
      return Error(Code::kInvalidArgument, "Invalid json schema: {} is not of types \"boolean\", \"object\"",
                   to_json(*schema.value()));
    }
    shown.kind = ResponseFormat::Kind::kJsonSchema;
    shown.schema = *schema.value();
    return set_grammar({.kind = Kind::kJsonSchema, .value = *schema.value(), .path = schema.path()}, request);
  }
  if (type == "regex") {
    shown.kind = ResponseFormat::Kind::kRegex;
    return set_text(Kind::kRegex, given(field["pattern"]) ? field["pattern"] : field["regex"], request);
  }
  return Error(
      Code::kInvalidArgument,
      "invalid request body: {}: unknown variant `{}`, expected one of `text`, `json_object`, `json_schema`, "
      "`regex`",
      field["type"].path(), type);
}

Status parse_grammar_fields(const JsonRef& body, GenerationRequest& request) {
  RETURN_IF_ERROR(parse_structured_outputs(body["structured_outputs"], request));
  if (given(body["guided_json"])) RETURN_IF_ERROR(set_schema(body["guided_json"], request));
  if (given(body["guided_regex"])) RETURN_IF_ERROR(set_text(Kind::kRegex, body["guided_regex"], request));
  if (given(body["guided_choice"])) RETURN_IF_ERROR(set_choice(body["guided_choice"], request));
  if (given(body["guided_grammar"])) RETURN_IF_ERROR(set_text(Kind::kEbnf, body["guided_grammar"], request));
  if (given(body["regex"])) RETURN_IF_ERROR(set_text(Kind::kRegex, body["regex"], request));
  if (given(body["json_schema"])) RETURN_IF_ERROR(set_schema(body["json_schema"], request));
  for (const char* name : {"ebnf", "grammar"}) {
    if (given(body[name])) RETURN_IF_ERROR(set_text(Kind::kEbnf, body[name], request));
  }
  RETURN_IF_ERROR(parse_so_args(body["so_args"], request));
  ASSIGN_OR_RETURN(request.constrains_calls, boolean_or(body["constrain_tool_calls"], false));
  return parse_thinking_budget(body["thinking_token_budget"], request);
}

}  // namespace deepinfer
