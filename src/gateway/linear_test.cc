// Whatever list or map of a request grows, reading it takes time in proportion: four times as much of it is compared
// with the first size, by CPU time. A reader that looks through all it has read for each new element takes sixteen
// times as long.
#include <gtest/gtest.h>

#include <ctime>
#include <functional>

#include "api/chat_request.h"
#include "api/completions_request.h"
#include "api/messages_request.h"
#include "api/responses_request.h"
#include "api/responses_response.h"
#include "gateway/constraint.h"
#include "gateway/gateway_test_support.h"
#include "gateway/prompt.h"

namespace deepinfer {
namespace {

double cpu_seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

// "a0,a1,...": `element` says each; "#" in it becomes its number.
std::string repeated(int count, const std::string& element, const std::string& between = ",") {
  std::string out;
  for (int i = 0; i < count; ++i) {
    if (i > 0) out += between;
    for (const char c : element) c == '#' ? out += std::to_string(i) : out += c;
  }
  return out;
}

// What a route does with a request before it is submitted. False: it was refused, at whatever place.
bool plan(const GenerationRequest& request) {
  for (const PromptProfile profile : {PromptProfile::kRecipe, PromptProfile::kReference}) {
    PromptFormat format;
    format.profile = profile;
    const auto constraint = plan_constraint(request, mini_tokenizer(), {1}, mini_tokenizer().vocab_size(), format);
    if (!constraint.ok()) return false;
    if (!prepare_prompts(request, mini_tokenizer(), {format, 1 << 20}).ok()) return false;
  }
  return true;
}

bool read_chat(const std::string& body) {
  const auto request = parse_chat_request(body, "m");
  return request.ok() && plan(*request);
}
bool read_messages(const std::string& body) {
  const auto request = parse_messages_request(body, "m");
  return request.ok() && plan(*request);
}
bool read_completions(const std::string& body) {
  const auto request = parse_completions_request(body, "m");
  return request.ok() && plan(*request);
}
bool read_responses(const std::string& body) {
  ResponsesContext context;
  context.served_model = "m";
  context.find_item = [](const std::string& id) {
    return parse_json(R"({"type":"message","role":"assistant","content":"x","id":")" + id + "\"}").ok()
               ? std::optional(*parse_json(R"({"type":"message","role":"assistant","content":"x"})"))
               : std::nullopt;
  };
  const auto json = parse_json(body);
  if (!json.ok()) return false;
  const auto request = parse_responses_request(*json, context);
  if (!request.ok()) return false;
  const auto writer = make_responses_writer({}, *request, {.now_s = [] { return int64_t{1}; }});
  std::string out;
  writer->end(0, {}, nullptr, out);
  return plan(*request);
}

struct Case {
  const char* name;
  bool (*read)(const std::string& body);
  std::function<std::string(int)> body;
  std::optional<bool> accepted = true;  // nothing: a limit of the grammars may refuse it
};

std::string chat(const std::string& messages, const std::string& more = "") {
  return R"({"model":"m","messages":[{"role":"user","content":"x"})" + messages + "]" + more + "}";
}
std::string responses(const std::string& items, const std::string& more = "") {
  return R"({"model":"m","input":[{"role":"user","content":"x"})" + items + "]" + more + "}";
}

// Names of the same length that begin alike: the worst for anything that compares or hashes them.
const std::string kId = "a_name_that_is_quite_long_and_begins_like_all_others_of_its_kind_#";

std::vector<Case> cases() {
  const std::string call = R"({"id":")" + kId + R"(","type":"function","function":{"name":"f","arguments":"{}"}})";
  const std::string result = R"({"role":"tool","tool_call_id":")" + kId + R"(","content":"r"})";
  const std::string use = R"({"type":"tool_use","id":")" + kId + R"(","name":"f","input":{}})";
  const std::string used = R"({"type":"tool_result","tool_use_id":")" + kId + R"(","content":"r"})";
  const std::string function_call =
      R"({"type":"function_call","call_id":")" + kId + R"(","name":"f","arguments":"{}"})";
  const std::string function_output = R"({"type":"function_call_output","call_id":")" + kId + R"(","output":"r"})";
  const std::string tool = R"({"type":"function","function":{"name":"t#","strict":true}})";
  const std::string parameters = R"({"type":"object","properties":{)";
  return {
      {"unknown fields of a message", read_chat,
       [](int n) {
         return R"({"model":"m","messages":[{"role":"user","content":"x",)" + repeated(n, "\"" + kId + "\":1") + "}]}";
       }},
      {"one field many times", read_chat,
       [](int n) {
         return R"({"model":"m","messages":[{"role":"user","content":"x",)" + repeated(n, R"("k":1)") + "}]}";
       }},
      {"too many fields", read_chat, [](int n) { return chat("", "," + repeated(n, "\"" + kId + "\":1")); }, false},
      {"messages", read_chat,
       [](int n) {
         return chat(repeated(n, R"(,{"role":"assistant","content":"a"},{"role":"user","content":"b"})", ""));
       }},
      {"system messages", read_chat,
       [](int n) { return chat(repeated(n, R"(,{"role":"system","content":"a"})", "")); }},
      {"parts", read_chat,
       [](int n) {
         return chat(R"(,{"role":"user","content":[)" + repeated(n, R"({"type":"text","text":"p"})") + "]}");
       }},
      {"calls of one message", read_chat,
       [=](int n) {
         return chat(R"(,{"role":"assistant","tool_calls":[)" + repeated(n, call) + "]}," + repeated(n, result));
       }},
      {"calls in turns", read_chat,
       [=](int n) { return chat(repeated(n, R"(,{"role":"assistant","tool_calls":[)" + call + "]}," + result, "")); }},
      {"many calls, then turns of one", read_chat,
       [=](int n) {
         return chat(R"(,{"role":"assistant","tool_calls":[)" + repeated(n, call) + "]}," + repeated(n, result) +
                     repeated(n, R"(,{"role":"assistant","tool_calls":[)" + call + "]}," + result, ""));
       }},
      {"calls without results", read_chat,
       [=](int n) {
         return chat(repeated(n, R"(,{"role":"assistant","tool_calls":[)" + call + "]}", ""),
                     R"(,"lenient_history":true)");
       }},
      {"calls of one message without results", read_chat,
       [=](int n) {
         return chat(R"(,{"role":"assistant","tool_calls":[)" + repeated(n, call) + "]}", R"(,"lenient_history":true)");
       }},
      {"reasoning details", read_chat,
       [](int n) {
         return chat(R"(,{"role":"assistant","content":"a","reasoning_details":[)" +
                     repeated(n, R"({"text":"a thought of some length"})") + "]}");
       }},
      {"tools", read_chat, [=](int n) { return chat("", R"(,"tools":[)" + repeated(n, tool) + "]"); }},
      {"functions", read_chat,
       [](int n) { return chat("", R"(,"functions":[)" + repeated(n, R"({"name":"t#"})") + "]"); }},
      {"allowed tools", read_chat,
       [=](int n) {
         return chat("", R"(,"tools":[)" + repeated(n, tool) +
                             R"(],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[)" +
                             repeated(n, R"({"type":"function","function":{"name":"t#"}})") + "]}}");
       }},
      {"parameters of a tool", read_chat,
       [=](int n) {
         return chat("", R"(,"tools":[{"type":"function","function":{"name":"t","parameters":)" + parameters +
                             repeated(n, R"("p#":{"type":"string"})") + "}}}}]");
       }},
      {"names of a schema", read_chat,
       [=](int n) {
         return chat("", R"(,"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"enum":[)" +
                             repeated(n, "\"v#\"") + "]}}}");
       },
       std::nullopt},
      {"choices", read_chat, [](int n) { return chat("", R"(,"guided_choice":[)" + repeated(n, "\"v#\"") + "]"); },
       std::nullopt},
      {"biases", read_chat,
       [](int n) { return chat("", R"(,"logit_bias":{)" + repeated(std::min(n, 16384), "\"#\":1") + "}"); }},
      {"stop ids", read_chat,
       [](int n) { return chat("", R"(,"stop_token_ids":[)" + repeated(std::min(n, 16384), "#") + "]"); }},
      {"ids of a prompt", read_completions,
       [](int n) { return R"({"model":"m","prompt":[)" + repeated(n, "5") + "]}"; }},
      {"blocks", read_messages,
       [](int n) {
         return chat(R"(,{"role":"user","content":[)" + repeated(n, R"({"type":"text","text":"p"})") + "]}");
       }},
      {"system blocks", read_messages,
       [](int n) { return chat("", R"(,"system":[)" + repeated(n, R"({"type":"text","text":"p"})") + "]"); }},
      {"uses", read_messages,
       [=](int n) {
         return chat(R"(,{"role":"assistant","content":[)" + repeated(n, use) + R"(]},{"role":"user","content":[)" +
                     repeated(n, used) + "]}");
       }},
      {"uses in turns", read_messages,
       [=](int n) {
         return chat(repeated(
             n, R"(,{"role":"assistant","content":[)" + use + R"(]},{"role":"user","content":[)" + used + "]}", ""));
       }},
      {"thinking blocks", read_messages,
       [](int n) {
         return chat(R"(,{"role":"assistant","content":[)" +
                     repeated(n, R"({"type":"thinking","thinking":"t","signature":"s"})") +
                     R"(]},{"role":"user","content":"y"})");
       }},
      {"tools of Messages and references to them", read_messages,
       [=](int n) {
         return chat(
             R"(,{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"t0","input":{}}]},)"
             R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[)" +
                 repeated(n, R"({"type":"tool_reference","tool_name":"t#"})") + "]}]}",
             R"(,"tools":[)" + repeated(n, R"({"name":"t#","input_schema":{"type":"object"}})") + "]");
       }},
      {"tool additions", read_messages,
       [=](int n) {
         return chat(R"(,{"role":"system","content":[)" +
                         repeated(n, R"({"type":"tool_addition","tool":{"name":"t#"}})") +
                         R"(]},{"role":"user","content":"y"})",
                     R"(,"tools":[)" + repeated(n, R"({"name":"t#","input_schema":{"type":"object"}})") + "]");
       }},
      {"items", read_responses,
       [](int n) {
         return responses(repeated(n, R"(,{"role":"assistant","content":"a"},{"role":"user","content":"b"})", ""));
       }},
      {"answers in a row", read_responses,
       [](int n) { return responses(repeated(n, R"(,{"role":"assistant","content":"a text of some length"})", "")); }},
      {"reasoning parts", read_responses,
       [](int n) {
         return responses(R"(,{"type":"reasoning","content":[)" +
                          repeated(n, R"({"text":"a thought of some length"})") +
                          R"(]},{"role":"assistant","content":"a"})");
       }},
      {"reasoning items", read_responses,
       [](int n) {
         return responses(repeated(n, R"(,{"type":"reasoning","content":[{"text":"a thought of some length"}]})", "") +
                          R"(,{"role":"assistant","content":"a"})");
       }},
      {"calls of Responses", read_responses,
       [=](int n) { return responses("," + repeated(n, function_call) + "," + repeated(n, function_output)); }},
      {"calls of Responses in turns", read_responses,
       [=](int n) { return responses(repeated(n, "," + function_call + "," + function_output, "")); }},
      {"item references", read_responses,
       [](int n) { return responses(repeated(n, R"(,{"type":"item_reference","id":"msg_resp_1_#"})", "")); }},
      {"tools of Responses", read_responses,
       [](int n) {
         return responses("", R"(,"tools":[)" + repeated(n, R"({"type":"function","name":"t#","strict":true})") + "]");
       }},
      {"tools of a namespace", read_responses,
       [](int n) {
         return responses("", R"(,"tools":[{"type":"namespace","name":"s","tools":[)" +
                                  repeated(n, R"({"type":"function","name":"t#"})") + "]}]");
       }},
      {"namespaces of one name", read_responses,
       [](int n) {
         return responses(
             "", R"(,"tools":[)" +
                     repeated(n, R"({"type":"namespace","name":"s","tools":[{"type":"function","name":"t"}]})") + "]");
       }},
      {"nested tools", read_responses,
       [](int n) {
         // Not deeper than JSON may be, but wide at the bottom.
         std::string nested = repeated(n, R"({"type":"web_search"})");
         for (int i = 0; i < 100; ++i) nested = R"({"type":"web_search","tools":[)" + nested + "]}";
         return responses("", R"(,"tools":[)" + nested + "]");
       }},
      {"found tools", read_responses,
       [](int n) {
         return responses(
             R"(,{"type":"tool_search_call","call_id":"a","arguments":{}},)"
             R"({"type":"tool_search_output","call_id":"a","tools":[)" +
             repeated(n, R"({"type":"function","name":"t#"})") + "]}");
       }},
      {"metadata", read_responses,
       [](int n) { return responses("", R"(,"metadata":{)" + repeated(n, "\"" + kId + "\":\"v\"") + "}"); }},
  };
}

TEST(Linear, EveryListAndMapOfARequestIsReadInProportion) {
  constexpr int kSmall = 3000, kLarge = 4 * kSmall;
  for (const Case& one : cases()) {
    const std::string small = one.body(kSmall), large = one.body(kLarge);
    double ratio = 1e9;
    for (int round = 0; round < 4 && ratio >= 8; ++round) {  // 16 for the square; a busy machine is given more rounds
      bool taken = true;
      const double few = cpu_seconds([&] { taken = one.read(small) && taken; });
      const double many = cpu_seconds([&] { taken = one.read(large) && taken; });
      EXPECT_EQ(taken, one.accepted.value_or(taken)) << one.name;
      ratio = std::min(ratio, many / few);
    }
    EXPECT_LT(ratio, 8) << one.name;
  }
}

}  // namespace
}  // namespace deepinfer
