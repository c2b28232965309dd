// Calls whose markup lost its control token: <invoke name=...>, <|DSML|...>, <\DSML\...> (docs/spec/recipe.md 5.3 item
// 12). Private to the room.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/recipe.h"

namespace deepinfer {

struct LookAlikeCall {
  std::string name;
  struct Parameter {
    std::string name, value;
    enum class Type { kString, kJson, kUnknown } type;
  };
  std::vector<Parameter> parameters;
  std::string body;  // instead of parameters
};

// The calls in `text` if it is nothing but calls of declared tools, from its first byte to its last; newlines
// may stand around them. Linear in the text.
std::optional<std::vector<LookAlikeCall>> read_look_alike(std::string_view text,
                                                          const std::vector<ToolSignature>& tools);

enum class LookAlike {
  kNo,         // and no longer text is
  kUndecided,  // at most a few hundred bytes
  kNamed,      // a call of a declared tool begins
};
LookAlike judge_look_alike(std::string_view text, const std::vector<ToolSignature>& tools);

}  // namespace deepinfer
