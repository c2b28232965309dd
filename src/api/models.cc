#include "api/models.h"

#include <fmt/chrono.h>

#include <ctime>

#include "json/json.h"

namespace deepinfer {
namespace {

// Fields of OpenAI's lists, then those of Anthropic's.
void write_model(JsonWriter& json, std::string_view name, int64_t created) {
  const auto time = static_cast<std::time_t>(created);
  json.begin_object()
      .member("id", name)
      .member("object", "model")
      .member("created", created)
      .member("owned_by", "deepinfer")
      .member("type", "model")
      .member("display_name", name)
      .member("created_at", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(time)))
      .end_object();
}

}  // namespace

std::string model_to_json(std::string_view name, int64_t created) {
  std::string out;
  JsonWriter json(out);
  write_model(json, name, created);
  return out;
}

std::string model_list_to_json(std::string_view name, int64_t created) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().member("object", "list").key("data").begin_array();
  write_model(json, name, created);
  json.end_array().member("has_more", false).member("first_id", name).member("last_id", name).end_object();
  return out;
}

std::string balance_to_json() {
  std::string out;
  JsonWriter(out)
      .begin_object()
      .member("is_available", true)
      .key("balance_infos")
      .begin_array()
      .begin_object()
      .member("currency", "USD")
      .member("total_balance", "0.00")
      .member("granted_balance", "0.00")
      .member("topped_up_balance", "0.00")
      .end_object()
      .end_array()
      .end_object();
  return out;
}

}  // namespace deepinfer
