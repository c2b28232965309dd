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
  std::vector<std::string> bodies;  // for what the recordings do not reach
};

bool read_responses(const std::string& body) {
  const Result<JsonValue> json = parse_json(body);
  ResponsesContext context;
  context.served_model = "m";
  context.open_sealed = [](std::string_view) { return std::optional<std::string>("thought"); };
  context.find_item = [](const std::string&) { return std::optional(*parse_json(R"({"role":"user","content":"x"})")); };
  return json.ok() && previous_response_id(*json).ok() && parse_responses_request(*json, context).ok();
}

// Fields that every path reads.
constexpr char kShared[] =
    R"("structured_outputs":{"json_object":true},"so_args":null,"think":true,"cache_salt":"s","stop_token_ids":[1],"min_tokens":1)";

std::vector<Reader> readers() {
  const std::string chat = R"({"model":"m","messages":[{"role":"user","content":"x"}],)";
  const std::string so_args =
      R"("so_args":{"schema_type":"regex","schema":"a","trigger_token_ids":[1],"bound_token_id":2}})";
  const auto reads_chat = [](const std::string& body) { return parse_chat_request(body, "m").ok(); };
  std::vector<Reader> all = {
      {"ChatRequest",
       "chat_completions",
       "chat_request",
       reads_chat,
       {chat + kShared + "}", chat + so_args,
        chat +
            R"("functions":[{"name":"f","description":"d","parameters":{"type":"object"},"strict":false}],"function_call":{"name":"f"}})",
        chat +
            R"("tools":[{"type":"custom","custom":{"name":"f","description":"d","format":{"type":"grammar","grammar":{"syntax":"regex","definition":"a"}}}}],
                  "tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"custom","custom":{"name":"f"}}]}}})",
        chat +
            R"("tools":[{"type":"custom","custom":{"name":"f"}}],"tool_choice":{"type":"custom","custom":{"name":"f"}}})",
        chat +
            R"("response_format":{"type":"json_schema","json_schema":{"schema":{}}},"chat_template_kwargs":{"task":"title"},
                  "reasoning":{"effort":"low","max_tokens":5,"enabled":true},"stream":true,"stream_options":{"include_usage":true}})",
        chat + R"("response_format":{"type":"json_schema","schema":{}}})",
        chat + R"("response_format":{"type":"regex","regex":"a"}})",
        chat + R"("response_format":{"type":"regex","pattern":"a"}})",
        R"({"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"data:image/png;base64,AAAA"}},
            {"type":"image_url","image_url":{"url":"https://x/y","detail":"low"}}],"task":"title"},
            {"role":"assistant","reasoning_details":[{"text":"t"}],"function_call":{"name":"f","arguments":"{}"}},
            {"role":"function","name":"f","content":"r"},
            {"role":"assistant","tool_calls":[{"id":"a","type":"custom","custom":{"name":"g","input":"i"}},{"id":"b","function":{"name":"f","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"a","content":"r"},{"role":"tool","tool_call_id":"b","content":"r"},
            {"role":"assistant","content":"x","prefix":true}]})"}},
      {"CompletionsRequest",
       "completions",
       "completions_request",
       [](const std::string& body) { return parse_completions_request(body, "m").ok(); },
       {std::string(R"({"model":"m","prompt":"x",)") + kShared + "}", R"({"model":"m","prompt":"x",)" + so_args,
        R"({"model":"m","prompt":"x","stream":true,"stream_options":{"include_usage":true},"response_format":{"type":"json_schema","json_schema":{"schema":{}}}})",
        R"({"model":"m","prompt":"x","response_format":{"type":"json_schema","schema":{}}})",
        R"({"model":"m","prompt":"x","response_format":{"type":"regex","regex":"a"}})"}},
      {"MessagesRequest",
       "messages",
       "messages_request",
       [](const std::string& body) { return parse_messages_request(body, "m").ok(); },
       {chat + kShared + "}", chat + so_args,
        chat +
            R"("tools":[{"name":"f","type":"custom","description":"d","input_schema":{"type":"object"},"strict":true,"defer_loading":false}],
                  "tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true},"thinking":{"type":"enabled","budget_tokens":5,"display":"omitted"},
                  "output_config":{"effort":"low","format":{"type":"json_schema","schema":{}}}})",
        chat + R"("output_format":{"type":"json_schema","json_schema":{"schema":{}}}})",
        chat + R"("output_format":{"type":"regex","regex":"a"}})",
        chat + R"("output_config":{"format":{"type":"json_schema","json_schema":{"schema":{}}}}})",
        chat + R"("output_config":{"format":{"type":"regex","regex":"a"}}})",
        R"({"model":"m","tools":[{"name":"f","input_schema":{"type":"object"}}],"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":[
            {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},{"type":"image","source":{"type":"url","url":"https://x/y"}},
            {"type":"document","source":{"type":"text","data":"d"}},{"type":"document","source":{"type":"base64","media_type":"x"}},
            {"type":"search_result","title":"t","source":"s","content":[{"type":"text","text":"x"}]}]},
            {"role":"system","content":[{"type":"tool_addition","tool":{"name":"f"}}]},
            {"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"tool_use","id":"a","name":"f","input":{}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"tool_reference","tool_name":"f"},{"type":"text","text":"x"},
              {"type":"image","source":{"type":"url","url":"https://x/y"}},{"type":"document","source":{"type":"text","data":"d"}},
              {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},
              {"type":"search_result","title":"t","source":"s","content":[{"type":"text","text":"x"}]}]}]}]})"}},
      {"ResponsesRequest",
       "responses",
       "responses_request",
       read_responses,
       {std::string(R"({"model":"m","input":"x",)") + kShared + "}", R"({"model":"m","input":"x",)" + so_args,
        R"({"model":"m","instructions":"x","reasoning":{"effort":"low","max_tokens":5,"summary":"auto"},"text":{"format":{"type":"json_schema","json_schema":{"schema":{}}},"verbosity":"low"}})",
        R"({"model":"m","input":"x","text":{"format":{"type":"json_schema","schema":{}}}})",
        R"({"model":"m","input":"x","text":{"format":{"type":"regex","regex":"a"}}})",
        R"({"model":"m","input":"x","tools":[{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true}]},
            {"type":"custom","name":"c","description":"d","format":{"type":"grammar","syntax":"regex","definition":"a"}},
            {"type":"custom","name":"e","format":{"type":"grammar","grammar":{"syntax":"regex","definition":"a"}}},
            {"type":"tool_search","execution":"client","description":"d","parameters":{"type":"object"}}],
            "tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"name":"c"}]}})",
        R"({"model":"m","input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f"}})",
        R"({"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"https://x/y","detail":"low"},
            {"type":"refusal","refusal":"x"},{"type":"input_file"}]},{"type":"item_reference","id":"i"},
            {"type":"reasoning","encrypted_content":"e"},{"type":"reasoning","content":[{"text":"t"}]},
            {"type":"function_call","call_id":"a","name":"f","namespace":"n","arguments":"{}"},{"type":"custom_tool_call","call_id":"b","name":"c","input":"x"},
            {"type":"tool_search_call","call_id":"d","arguments":{}},{"type":"local_shell_call","call_id":"e","action":{}},
            {"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"https://x/y","detail":"low"},{"type":"refusal","refusal":"x"}]},
            {"type":"custom_tool_call_output","call_id":"b","output":"x"},
            {"type":"tool_search_output","call_id":"d","tools":[{"type":"function","name":"g","description":"d","parameters":{"type":"object"},"strict":false}]},
            {"type":"local_shell_call_output","call_id":"e","output":"x"}]})"}},
      {"TokenizeRequest",
       "",
       "",
       [](const std::string& body) { return parse_tokenize_request(body, "m").ok(); },
       {R"({"prompt":"x"})"}},
      {"DetokenizeRequest",
       "",
       "",
       [](const std::string& body) { return parse_detokenize_request(body).ok(); },
       {R"({"tokens":[1]})"}},
  };
  for (const std::string& body : all[0].bodies) all[4].bodies.push_back(body);  // messages may stand there too
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
