// The document of the service against the readers of requests: what is read is described, what is described is read.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "api/chat_request.h"
#include "api/completions_request.h"
#include "api/inspection.h"
#include "api/messages_request.h"
#include "api/responses_request.h"
#include "gateway/openapi.h"
#include "json/json.h"
#include "json/lookups.h"
#include "source_path.h"

namespace deepinfer {
namespace {

const JsonValue& document() {
  static const JsonValue parsed = *parse_json(openapi_text());
  return parsed;
}

// The schemas that describe a place: references and alternatives are followed.
void collect(const JsonValue& schema, std::vector<const JsonValue*>& out) {
  if (const JsonValue* reference = schema.find("$ref")) {
    JsonRef at(document());
    std::istringstream parts(reference->string()->substr(2));
    for (std::string part; std::getline(parts, part, '/');) at = at[part];
    if (at.present()) collect(*at.value(), out);
    return;
  }
  out.push_back(&schema);
  for (const char* word : {"allOf", "anyOf", "oneOf"}) {
    const JsonValue* list = schema.find(word);
    for (size_t i = 0; list != nullptr && i < list->array()->size(); ++i) collect((*list->array())[i], out);
  }
}

std::vector<const JsonValue*> step(const std::vector<const JsonValue*>& schemas, const std::string& name) {
  std::vector<const JsonValue*> out;
  for (const JsonValue* schema : schemas) {
    const JsonValue* found = nullptr;
    if (name == "[]") {
      found = schema->find("items");
    } else if (const JsonValue* properties = schema->find("properties")) {
      found = properties->find(name);
    }
    if (found != nullptr) collect(*found, out);
  }
  return out;
}

// "a[].b" as "a", "[]", "b".
std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts(1);
  for (const char c : path) {
    if (c == '.' || c == '[') parts.emplace_back();
    if (c != '.') parts.back() += c;
  }
  return parts;
}

bool is_described(const std::string& schema, const std::string& path) {
  std::vector<const JsonValue*> at;
  collect(*JsonRef(document())["components"]["schemas"][schema].value(), at);
  for (const std::string& part : parts_of(path)) at = step(at, part);
  return !at.empty();
}

std::set<std::string> described_fields(const std::string& schema) {
  std::vector<const JsonValue*> at;
  collect(*JsonRef(document())["components"]["schemas"][schema].value(), at);
  std::set<std::string> names;
  for (const JsonValue* one : at) {
    const JsonValue* properties = one->find("properties");
    for (size_t i = 0; properties != nullptr && i < properties->object()->size(); ++i) {
      names.insert((*properties->object())[i].key);
    }
  }
  return names;
}

struct Reader {
  const char* schema;
  const char* protocol;  // of the recordings
  const char* corpus;
  std::function<bool(const std::string& body)> read;
  std::vector<std::string> bodies = {};
};

bool read_responses(const std::string& body) {
  const Result<JsonValue> json = parse_json(body);
  ResponsesContext context;
  context.served_model = "m";
  context.open_sealed = [](std::string_view) { return std::optional<std::string>("thought"); };
  context.find_item = [](const std::string&) { return std::optional(*parse_json(R"({"role":"user","content":"x"})")); };
  return json.ok() && previous_response_id(*json).ok() && parse_responses_request(*json, context).ok();
}

// Bodies that reach what the recordings do not, one a line, all of them right.
std::vector<std::string> bodies_of(const char* schema) {
  std::ifstream file(source_path(fmt::format("tests/data/requests/{}.jsonl", schema)));
  std::vector<std::string> bodies;
  for (std::string line; std::getline(file, line);) bodies.push_back(line);
  EXPECT_FALSE(bodies.empty()) << schema;
  return bodies;
}

std::vector<Reader> readers() {
  std::vector<Reader> all = {
      {"ChatRequest", "chat_completions", "chat_request",
       [](const std::string& body) { return parse_chat_request(body, "m").ok(); }},
      {"CompletionsRequest", "completions", "completions_request",
       [](const std::string& body) { return parse_completions_request(body, "m").ok(); }},
      {"MessagesRequest", "messages", "messages_request",
       [](const std::string& body) { return parse_messages_request(body, "m").ok(); }},
      {"ResponsesRequest", "responses", "responses_request", read_responses},
  };
  for (Reader& reader : all) reader.bodies = bodies_of(reader.schema);
  // Its messages are those of Chat.
  std::vector<std::string> texts = all[0].bodies;
  texts.push_back(R"({"prompt":"x"})");
  all.push_back({"TokenizeRequest", "", "",
                 [](const std::string& body) { return parse_tokenize_request(body, "m").ok(); }, texts});
  all.push_back({"DetokenizeRequest",
                 "",
                 "",
                 [](const std::string& body) { return parse_detokenize_request(body).ok(); },
                 {R"({"tokens":[1]})"}});
  return all;
}

// Requests of the recordings and of the fuzzer; some are wrong, they are read all the same.
void read_recordings(const Reader& reader) {
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/data/recipe"))) {
    if (entry.path().extension() != ".jsonl" || *reader.protocol == '\0') continue;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      const Result<JsonValue> record = parse_json(line);
      if (!record.ok()) continue;
      const JsonRef input = JsonRef(*record)["input"];
      const JsonRef protocol = input["protocol"];
      const bool own = protocol.present() && *protocol.value()->string() == reader.protocol;
      if (own && input["request"].present()) reader.read(to_json(*input["request"].value()));
    }
  }
  if (*reader.corpus == '\0') return;
  for (const auto& entry :
       std::filesystem::directory_iterator(source_path("tests/fuzz/corpus") + "/" + reader.corpus)) {
    std::ostringstream body;
    body << std::ifstream(entry.path()).rdbuf();
    reader.read(body.str());
  }
}

TEST(OpenApi, EveryFieldThatIsReadIsDescribed) {
  for (const Reader& reader : readers()) {
    std::set<std::string> read;
    {
      const JsonLookups lookups;
      for (const std::string& body : reader.bodies) EXPECT_TRUE(reader.read(body)) << reader.schema << body;
      read = lookups.paths();
    }
    const JsonLookups lookups;
    read_recordings(reader);
    for (const std::string& path : lookups.paths()) {
      // The recordings are documents of their own.
      if (!path.starts_with("input.") && path != "input" && path != "protocol" && path != "request") read.insert(path);
    }
    for (const std::string& path : read)
      EXPECT_TRUE(is_described(reader.schema, path)) << reader.schema << ": " << path;
  }
}

// Fields that clients send and that nobody here needs; they are described so that their senders find them.
const std::set<std::string> kIgnored = {"user", "prompt_cache_key", "safety_identifier", "metadata"};

TEST(OpenApi, EveryFieldThatIsDescribedIsRead) {
  for (const Reader& reader : readers()) {
    const JsonLookups lookups;
    for (const std::string& body : reader.bodies) reader.read(body);
    for (const std::string& field : described_fields(reader.schema)) {
      EXPECT_TRUE(lookups.paths().count(field) > 0 || kIgnored.count(field) > 0) << reader.schema << ": " << field;
    }
  }
}

}  // namespace
}  // namespace deepinfer
