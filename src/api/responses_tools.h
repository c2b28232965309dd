// Tools of a Responses request. Private to the room.
#pragma once

#include "api/responses_request.h"

namespace deepinfer {

// A list of tools: functions, namespaces, custom tools, tool search of the client. Others are left out.
// `names_unique` also refuses two of one name.
enum class ToolNamesRule { kUnique, kAny };
Result<std::vector<ToolDefinition>> parse_responses_tools(const JsonRef& field, ToolNamesRule rule);

// A tool that takes text: its name, description and format.
Result<ToolDefinition> parse_custom_tool(const JsonRef& field);

Status parse_responses_choice(const JsonRef& field, Conversation& conversation);

// "tools" as the response object repeats them: missing fields are null.
JsonValue echo_tools(const JsonRef& field);

}  // namespace deepinfer
