// What no finite value can satisfy: recursion without an end, branches and properties that are false.
#include <algorithm>
#include <string>

#include "grammar/schema_parts.h"

namespace deepinfer {
namespace {

using Object = JsonValue::Object;

class Pruner {
 public:
  explicit Pruner(std::vector<JsonValue>& definitions) : definitions_(definitions) {}

  bool run(JsonValue& root) {
    find_satisfiable();
    if (!satisfiable(root)) return false;
    prune(root);
    for (size_t i = 0; i < definitions_.size(); ++i) {
      if (productive_[i]) {
        prune(definitions_[i]);
      } else {
        definitions_[i] = JsonValue();
      }
    }
    return true;
  }

 private:
  // Least fixed point over the definitions.
  void find_satisfiable() {
    productive_.assign(definitions_.size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < definitions_.size(); ++i) {
        if (productive_[i] || !satisfiable(definitions_[i])) continue;
        productive_[i] = changed = true;
      }
    }
  }

  bool satisfiable(const JsonValue& schema) const {
    if (const JsonValue* ref = schema.find("$ref")) return productive_[std::stoul(ref->string()->substr(8))];
    const auto is_satisfiable = [this](const JsonValue& one) { return satisfiable(one); };
    if (const JsonValue* branches = schema.find("anyOf")) {
      return std::any_of(branches->array()->begin(), branches->array()->end(), is_satisfiable);
    }
    if (const JsonValue* first = schema.find("prefixItems")) {
      if (!std::all_of(first->array()->begin(), first->array()->end(), is_satisfiable)) return false;
    }
    const JsonValue* items = schema.find("items");
    const JsonValue* fewest = schema.find("minItems");
    if (items != nullptr && !items->boolean() && fewest != nullptr && *fewest->int64() > 0 && !satisfiable(*items))
      return false;
    if (const JsonValue* required = schema.find("required")) {
      for (const JsonValue& name : *required->array()) {
        if (!satisfiable(*schema.find("properties")->find(*name.string()))) return false;
      }
    }
    return true;
  }

  // Takes out of a satisfiable schema what is not.
  void prune(JsonValue& schema) const {
    if (schema.object() == nullptr) return;
    if (JsonValue* branches = schema.find("anyOf")) {
      std::erase_if(*branches->array(), [this](const JsonValue& one) { return !satisfiable(one); });
      for (JsonValue& one : *branches->array()) prune(one);
    }
    if (JsonValue* first = schema.find("prefixItems")) {
      for (JsonValue& one : *first->array()) prune(one);
    }
    if (JsonValue* items = schema.find("items"); items != nullptr && items->object() != nullptr) {
      if (satisfiable(*items)) {
        prune(*items);
      } else {  // no item is possible, so the array is empty
        *items = schema.find("prefixItems") != nullptr ? JsonValue(false) : JsonValue(Object{});
        if (items->object() != nullptr) {
          std::erase_if(*schema.object(), [](const JsonMember& member) { return member.key == "maxItems"; });
          schema.object()->push_back({"maxItems", 0});
        }
      }
    }
    if (JsonValue* properties = schema.find("properties")) {
      std::erase_if(*properties->object(), [this](const JsonMember& member) { return !satisfiable(member.value); });
      for (JsonMember& member : *properties->object()) prune(member.value);
    }
    if (JsonValue* others = schema.find("additionalProperties"); others != nullptr && others->object() != nullptr) {
      if (satisfiable(*others)) {
        prune(*others);
      } else {
        *others = JsonValue(false);
      }
    }
  }

  std::vector<JsonValue>& definitions_;
  std::vector<bool> productive_;
};

}  // namespace

bool prune_unsatisfiable(JsonValue& schema, std::vector<JsonValue>& definitions) {
  return Pruner(definitions).run(schema);
}

}  // namespace deepinfer
