// Tool calls as the recipe spells them (docs/spec/recipe.md 4.2): a block of invokes with one element a parameter,
// strings as they are and everything else as JSON. Written as structural tags.
#include <algorithm>
#include <optional>

#include "grammar/grammar.h"
#include "grammar/schema.h"

namespace deepinfer {
namespace {

using Object = JsonValue::Object;
using Array = JsonValue::Array;

constexpr int kMaxFlattening = 64;

JsonValue constant(std::string text) {
  return Object{{"type", "const_string"}, {"value", std::move(text)}};
}
JsonValue sequence(Array elements) {
  return Object{{"type", "sequence"}, {"elements", std::move(elements)}};
}
JsonValue one_of(Array elements) {
  if (elements.size() == 1) return std::move(elements.front());
  return Object{{"type", "or"}, {"elements", std::move(elements)}};
}
JsonValue any_number_of(JsonValue content) {
  return Object{{"type", "star"}, {"content", std::move(content)}};
}
JsonValue tag(std::string begin, JsonValue content, std::string end) {
  return Object{
      {"type", "tag"}, {"begin", std::move(begin)}, {"content", std::move(content)}, {"end", std::move(end)}};
}

// A text at its place in a call, as the expression says.
JsonValue expression(std::string_view text) {
  return Object{{"type", "grammar"}, {"grammar", grammar_of(text)}};
}
constexpr TextPlace kAsItIs = {.in_json = false, .in_call = true};

class CallWriter {
 public:
  explicit CallWriter(const CallGrammar& calls)
      : calls_(calls), opener_("<" + calls.tags.mark), closer_("</" + calls.tags.mark) {}

  Result<JsonValue> write() {
    Array invokes;
    for (const CallableTool& tool : calls_.tools) {
      ASSIGN_OR_RETURN(JsonValue one, invoke(tool));
      invokes.push_back(std::move(one));
    }
    JsonValue any = one_of(std::move(invokes));
    Array inner = {any};
    if (calls_.parallel) inner.push_back(any_number_of(sequence({constant("\n"), any})));
    const std::string begin = opener_ + calls_.tags.block + ">\n",
                      end = "\n" + closer_ + calls_.tags.block + ">";
    switch (calls_.where) {
      case CallGrammar::Where::kInsideBlock:
        inner.push_back(constant(end));
        return sequence(std::move(inner));
      case CallGrammar::Where::kAtOnce:
        return at_once(begin, std::move(inner), end);
      case CallGrammar::Where::kAnywhere:
        break;
    }
    if (calls_.or_schema) {
      ASSIGN_OR_RETURN(JsonValue schema, prepare_schema(*calls_.or_schema, calls_.or_path));
      return one_of({json(schema), at_once(begin, std::move(inner), end)});
    }
    Array tags;
    tags.push_back(tag(begin, sequence(std::move(inner)), end));
    return JsonValue(Object{{"type", "triggered_tags"},
                            {"triggers", Array{opener_}},
                            {"tags", std::move(tags)},
                            {"at_least_one", false},
                            {"stop_after_first", true}});
  }

 private:
  static JsonValue at_once(const std::string& begin, Array inner, const std::string& end) {
    inner.insert(inner.begin(), constant("\n\n" + begin));
    inner.push_back(constant(end));
    return sequence(std::move(inner));
  }

  Result<JsonValue> invoke(const CallableTool& tool) const {
    const std::string begin = fmt::format("{}{} name=\"{}\">\n", opener_, calls_.tags.call, tool.name);
    const std::string end = fmt::format("{}{}>", closer_, calls_.tags.call);
    Result<JsonValue> arguments = tool.input_syntax.empty() ? declared_arguments(tool) : custom_input(tool);
    if (!arguments.ok() && tool.strict) return arguments.error();
    JsonValue content = arguments.ok() ? std::move(*arguments) : any_number_of(any_parameter());
    return tag(begin, std::move(content), end);
  }

  // A custom tool's, which the library reads if it is Lark (worker.cc).
  Result<JsonValue> custom_input(const CallableTool& tool) const {
    JsonValue input = Object{{"type", "lark"}, {"grammar", tool.input_grammar}};
    if (tool.input_syntax == "regex") {
      const Result<std::string> read = prepare_pattern(tool.input_grammar, kAsItIs);
      if (!read.ok()) return read.error().in(tool.path);
      input = expression(*read);
    } else {
      RETURN_IF_ERROR(check_grammar_text(tool.input_grammar, tool.path));
    }
    return tag(begin_of(name_opener() + "input", true), std::move(input), end_of_parameter());
  }

  // A tool without a schema of its own takes any arguments.
  Result<JsonValue> declared_arguments(const CallableTool& tool) const {
    const bool says_nothing = tool.parameters.object() == nullptr || tool.parameters.object()->empty();
    if (says_nothing) return any_number_of(any_parameter());
    ASSIGN_OR_RETURN(const JsonValue prepared, prepare_schema(tool.parameters, tool.path));
    const JsonValue* object = &prepared;
    for (int i = 0; i < kMaxFlattening && object->find("$ref") != nullptr; ++i)
      object = target(*object, prepared);
    const JsonValue* type = object->find("type");
    if (type == nullptr || type->string() == nullptr || *type->string() != "object") {
      return Error(Code::kUnimplemented, "{}: type: expected object; other arguments can't be enforced",
                   tool.path);
    }
    const JsonValue* properties = object->find("properties");
    if (properties == nullptr || properties->object()->empty()) {
      const JsonValue* others = object->find("additionalProperties");
      if (others == nullptr || others->boolean()) return constant("\n");
      if (others->object()->empty()) return any_number_of(any_parameter());
      ASSIGN_OR_RETURN(JsonValue ways, values("", *others, prepared, tool.path + ".additionalProperties"));
      return any_number_of(sequence({constant(name_opener()), any_name(), std::move(ways)}));
    }
    const JsonValue* required = object->find("required");
    Array elements;
    for (const JsonMember& member : *properties->object()) {
      if (!is_plain_name(member.key)) {
        return Error(Code::kUnimplemented, "{}: properties: the name '{}' can't be used in a call",
                     tool.path, member.key);
      }
      ASSIGN_OR_RETURN(JsonValue one, values(name_opener() + member.key, member.value, prepared,
                                             fmt::format("{}.properties.{}", tool.path, member.key)));
      const bool must = required != nullptr && std::find(required->array()->begin(), required->array()->end(),
                                                         JsonValue(member.key)) != required->array()->end();
      elements.push_back(must ? std::move(one)
                              : JsonValue(Object{{"type", "optional"}, {"content", std::move(one)}}));
    }
    return elements.size() == 1 ? std::move(elements.front()) : sequence(std::move(elements));
  }

  // What ends a name or a tag can't be in a name.
  static bool is_plain_name(std::string_view name) {
    return !name.empty() && name.find_first_of("\"<>\n") == std::string_view::npos;
  }

  static const JsonValue* target(const JsonValue& reference, const JsonValue& root) {
    return root.find("$defs")->find(reference.find("$ref")->string()->substr(8));
  }

  // The rest of an element from behind `opener`, the name or a part of it: one way for each way to write a value.
  Result<JsonValue> values(const std::string& opener, const JsonValue& schema, const JsonValue& root,
                           const std::string& path) const {
    Array ways;
    Array of_json;
    int left = kMaxFlattening;
    collect(opener, schema, root, left, ways, of_json);
    if (!of_json.empty()) {
      JsonValue value =
          of_json.size() == 1 ? std::move(of_json.front()) : JsonValue(Object{{"anyOf", std::move(of_json)}});
      if (const JsonValue* definitions = root.find("$defs"))
        value.object()->push_back({"$defs", *definitions});
      ways.push_back(tag(begin_of(opener, false), json(value), end_of_parameter()));
    }
    if (ways.empty())
      return Error(Code::kUnimplemented, "{}: no value of it can be written in a call, whose tags it would hold", path);
    return one_of(std::move(ways));
  }

  void collect(const std::string& opener, const JsonValue& schema, const JsonValue& root, int& left,
               Array& ways, Array& of_json) const {
    if (--left < 0) return;
    if (schema.find("$ref") != nullptr)
      return collect(opener, *target(schema, root), root, left, ways, of_json);
    if (const JsonValue* branches = schema.find("anyOf")) {
      for (const JsonValue& one : *branches->array()) collect(opener, one, root, left, ways, of_json);
      return;
    }
    if (const JsonValue* values = schema.find("enum")) {
      Array texts, others;
      for (const JsonValue& one : *values->array()) {
        if (one.string() == nullptr) {
          others.push_back(one);
        } else if (one.string()->find(closer_) == std::string::npos &&
                   one.string()->find(opener_) == std::string::npos) {
          texts.push_back(constant(*one.string()));
        }
      }
      if (!texts.empty())
        ways.push_back(tag(begin_of(opener, true), one_of(std::move(texts)), end_of_parameter()));
      if (!others.empty()) of_json.push_back(Object{{"enum", std::move(others)}});
      return;
    }
    const JsonValue* type = schema.find("type");
    if (type == nullptr) {  // anything
      ways.push_back(tag(begin_of(opener, true), free_text(), end_of_parameter()));
      for (const char* other : {"number", "boolean", "null"}) of_json.push_back(Object{{"type", other}});
      of_json.push_back(Object{{"type", "array"}, {"items", Object{}}});
      of_json.push_back(Object{{"type", "object"}, {"additionalProperties", true}});
      return;
    }
    if (*type->string() == "string") {
      if (auto form = text(schema)) ways.push_back(tag(begin_of(opener, true), std::move(*form), end_of_parameter()));
    } else {
      of_json.push_back(schema);
    }
  }

  std::string name_opener() const { return fmt::format("{}{} name=\"", opener_, calls_.tags.parameter); }
  std::string begin_of(const std::string& opener, bool is_string) const {
    return fmt::format("{}\" string=\"{}\">", opener, is_string);
  }
  std::string end_of_parameter() const { return fmt::format("{}{}>\n", closer_, calls_.tags.parameter); }

  // A string as it is. Neither tag may be in it, since nothing is escaped. Nothing: its pattern needs one.
  std::optional<JsonValue> text(const JsonValue& schema) const {
    const JsonValue* shortest = schema.find("minLength");
    const JsonValue* longest = schema.find("maxLength");
    if (shortest == nullptr && longest == nullptr) {
      const JsonValue* pattern = schema.find("pattern");
      if (pattern == nullptr) return free_text();
      const Result<std::string> read = prepare_pattern(*pattern->string(), kAsItIs);
      return read.ok() ? std::optional(expression(*read)) : std::nullopt;
    }
    const int64_t fewest = shortest == nullptr ? 0 : *shortest->int64();
    std::optional<int64_t> most;
    if (longest != nullptr) most = *longest->int64();
    if (std::max(fewest, most.value_or(0)) <= kMostCounted) return expression(any_text(fewest, most, kAsItIs));
    return JsonValue(Object{{"type", "grammar"},
                            {"grammar", fmt::format("root ::= [^\\uff5c]{{{},{}}}", fewest,
                                                    most ? std::to_string(*most) : "")}});
  }
  JsonValue free_text() const { return Object{{"type", "any_text"}, {"excludes", Array{closer_, opener_}}}; }

  // JSON in a tag: no string in it may close the tag.
  JsonValue json(const JsonValue& schema) const {
    return Object{{"type", "json_schema"},
                  {"json_schema", lowered_schema(schema, true)},
                  {"excludes", Array{closer_, opener_}}};
  }
  static JsonValue any_name() { return expression("[a-zA-Z_][a-zA-Z0-9_\\u{2d}]{0,63}"); }

  JsonValue any_parameter() const {
    const JsonValue anything =
        Object{{"anyOf", Array{Object{{"type", "number"}}, Object{{"type", "boolean"}},
                               Object{{"type", "null"}}, Object{{"type", "array"}, {"items", Object{}}},
                               Object{{"type", "object"}, {"additionalProperties", true}}}}};
    return sequence({constant(name_opener()), any_name(),
                     one_of({tag(begin_of("", true), free_text(), end_of_parameter()),
                             tag(begin_of("", false), json(anything), end_of_parameter())})});
  }

  const CallGrammar& calls_;
  const std::string opener_, closer_;
};

}  // namespace

Result<GrammarSpec> prepare_calls(const CallGrammar& calls) {
  ASSIGN_OR_RETURN(JsonValue format, CallWriter(calls).write());
  return GrammarSpec{GrammarSpec::Kind::kStructuralTag,
                     to_json(JsonValue::Object{{"type", "structural_tag"}, {"format", std::move(format)}}),
                     true};
}

}  // namespace deepinfer
