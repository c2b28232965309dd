// Tools of a chat request. Private to the room.
#pragma once

#include "base/status.h"
#include "json/json.h"
#include "recipe/recipe.h"

namespace deepinfer {

// Fills tools and tool_choice; `body` is the request. A named choice keeps only that tool and forces it. True: they
// were declared as `functions`, with `function_call` for the choice, as before there were tools.
Result<bool> parse_chat_tools(const JsonRef& body, Conversation& conversation);

}  // namespace deepinfer
