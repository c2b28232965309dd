// Clients' grammars as specs: checked and written out in one form.
#include <algorithm>

#include "grammar/grammar.h"
#include "grammar/schema.h"

namespace deepinfer {
namespace {

constexpr size_t kMaxTextBytes = 64 << 10;
constexpr int64_t kMaxRepetition = 1000;
constexpr int64_t kMaxTagNodes = 20'000;

GrammarSpec json_spec(const JsonValue& prepared) {
  return {GrammarSpec::Kind::kJsonSchema, to_json(lowered_schema(prepared)), true};
}

std::string joined(std::string_view path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

// Repetition counts multiply in the compiler; none may be large.
Status check_repetitions(std::string_view text, std::string_view path) {
  for (size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at + 1)) {
    int64_t number = 0;
    for (size_t i = at + 1; i < text.size() && (std::isdigit(static_cast<unsigned char>(text[i])) != 0 ||
                                                text[i] == ',' || text[i] == ' ');
         ++i) {
      number = text[i] == ',' || text[i] == ' ' ? 0 : number * 10 + (text[i] - '0');
      if (number > kMaxRepetition) {
        return Error(Code::kInvalidArgument, "{}: a repetition of more than {}", path, kMaxRepetition);
      }
    }
  }
  return {};
}

}  // namespace

// The library's parser recurses with brackets.
Status check_grammar_text(std::string_view text, std::string_view path) {
  if (text.size() > kMaxTextBytes) {
    return Error(Code::kInvalidArgument, "{}: found {} bytes, expected at most {}", path, text.size(),
                 kMaxTextBytes);
  }
  if (text.find('\0') != std::string_view::npos)
    return Error(Code::kInvalidArgument, "{}: found a NUL character", path);
  int depth = 0, deepest = 0;
  for (const char c : text) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    deepest = std::max(deepest, depth);
  }
  if (deepest > 100) return Error(Code::kInvalidArgument, "{}: brackets are nested deeper than 100", path);
  return check_repetitions(text, path);
}

namespace {

class TagPreparer {
 public:
  Result<JsonValue> run(const JsonValue& value, const std::string& path) {
    if (++num_nodes_ > kMaxTagNodes)
      return Error(Code::kInvalidArgument, "{}: more than {} values", path, kMaxTagNodes);
    if (const JsonValue::Array* array = value.array()) {
      JsonValue::Array out;
      for (size_t i = 0; i < array->size(); ++i) {
        ASSIGN_OR_RETURN(JsonValue one, run((*array)[i], fmt::format("{}[{}]", path, i)));
        out.push_back(std::move(one));
      }
      return JsonValue(std::move(out));
    }
    if (value.object() == nullptr) return value;
    if (const JsonValue* type = value.find("type"); type != nullptr && *type == JsonValue("regex"))
      return pattern(value, path);
    JsonValue::Object out;
    for (const JsonMember& member : *value.object()) {
      const std::string at = joined(path, member.key);
      if (member.key == "json_schema" || member.key == "schema") {
        ASSIGN_OR_RETURN(JsonValue prepared, prepare_schema(member.value, at));
        out.push_back({member.key, lowered_schema(prepared)});
      } else if (member.key == "grammar" && member.value.string() != nullptr) {
        RETURN_IF_ERROR(check_grammar_text(*member.value.string(), at));
        out.push_back(member);
      } else if ((member.key == "min" || member.key == "max") && member.value.number() &&
                 *member.value.number() > kMaxRepetition) {
        return Error(Code::kInvalidArgument, "{}: a repetition of more than {}", at, kMaxRepetition);
      } else {
        ASSIGN_OR_RETURN(JsonValue one, run(member.value, at));
        out.push_back({member.key, std::move(one)});
      }
    }
    return JsonValue(std::move(out));
  }

 private:
  static Result<JsonValue> pattern(const JsonValue& value, const std::string& path) {
    const JsonValue* text = value.find("pattern");
    if (text == nullptr || text->string() == nullptr)
      return Error(Code::kInvalidArgument, "{}: pattern: expected a string", path);
    const Result<std::string> read = prepare_pattern(*text->string());
    if (!read.ok()) return read.error().in(path);
    return JsonValue(JsonValue::Object{{"type", "grammar"}, {"grammar", grammar_of(*read)}});
  }

  int64_t num_nodes_ = 0;
};

}  // namespace

Result<GrammarSpec> prepare_json_object() {
  return prepare_json_schema(JsonValue::Object{{"type", "object"}}, "schema");
}

Result<GrammarSpec> prepare_json_schema(const JsonValue& schema, std::string_view path) {
  ASSIGN_OR_RETURN(const JsonValue prepared, prepare_schema(schema, path));
  return json_spec(prepared);
}

Result<GrammarSpec> prepare_regex(std::string_view pattern, std::string_view path) {
  const Result<std::string> plain = prepare_pattern(pattern);
  if (!plain.ok()) return plain.error().in(path);
  return GrammarSpec{GrammarSpec::Kind::kEbnf, grammar_of(*plain)};
}

Result<GrammarSpec> prepare_ebnf(std::string_view grammar, std::string_view path) {
  RETURN_IF_ERROR(check_grammar_text(grammar, path));
  return GrammarSpec{GrammarSpec::Kind::kEbnf, std::string(grammar)};
}

Result<GrammarSpec> prepare_choice(const std::vector<std::string>& choices, std::string_view path) {
  const SchemaLimits limits;
  if (choices.empty()) return Error(Code::kInvalidArgument, "{}: expected at least one choice", path);
  if (std::ssize(choices) > limits.enum_values) {
    return Error(Code::kInvalidArgument, "{}: found {} choices, expected at most {}", path, choices.size(),
                 limits.enum_values);
  }
  JsonValue::Array elements;
  size_t bytes = 0;
  for (const std::string& choice : choices) {
    if (choice.empty()) return Error(Code::kInvalidArgument, "{}: found an empty choice", path);
    bytes += choice.size();
    elements.push_back(JsonValue::Object{{"type", "const_string"}, {"value", choice}});
  }
  if (bytes > kMaxTextBytes)
    return Error(Code::kInvalidArgument, "{}: the choices take more than {} bytes", path, kMaxTextBytes);
  JsonValue format = std::move(elements.front());
  if (elements.size() > 1) {
    elements.front() = std::move(format);
    format = JsonValue::Object{{"type", "or"}, {"elements", std::move(elements)}};
  }
  return GrammarSpec{GrammarSpec::Kind::kStructuralTag,
                     to_json(JsonValue::Object{{"type", "structural_tag"}, {"format", std::move(format)}})};
}

Result<GrammarSpec> prepare_structural_tag(const JsonValue& tag, std::string_view path) {
  if (tag.object() == nullptr)
    return Error(Code::kInvalidArgument, "{}: found {}, expected an object", path, tag.kind_name());
  ASSIGN_OR_RETURN(const JsonValue prepared, TagPreparer().run(tag, std::string(path)));
  std::string text = to_json(prepared);
  if (text.size() > (size_t{256} << 10))
    return Error(Code::kInvalidArgument, "{}: found {} bytes, expected at most {}", path, text.size(),
                 256 << 10);
  return GrammarSpec{GrammarSpec::Kind::kStructuralTag, std::move(text)};
}

}  // namespace deepinfer
