// GET /v1/models and /v1/models/{id}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

// Whether requests may name the model so: its own name, those of DeepSeek's service and, for Messages, claude-...
bool is_served(std::string_view name, std::string_view served_model);

std::string model_to_json(std::string_view name, int64_t created);
std::string model_list_to_json(std::string_view name, int64_t created);

// GET /user/balance: nothing is charged here, so there is always enough.
std::string balance_to_json();

}  // namespace deepinfer
