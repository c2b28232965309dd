// GET /v1/models and /v1/models/{id}.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

std::string model_to_json(std::string_view name, int64_t created);
std::string model_list_to_json(std::string_view name, int64_t created);

// GET /user/balance: nothing is charged here, so there is always enough.
std::string balance_to_json();

}  // namespace deepinfer
