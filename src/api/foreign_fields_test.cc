// Fields of other services and servers: done, or refused by name; never without effect (docs/api.md).
#include <gtest/gtest.h>

#include "api/chat_request.h"
#include "api/completions_request.h"
#include "api/messages_request.h"
#include "api/responses_request.h"

namespace deepinfer {
namespace {

enum class Path { kChat, kResponses, kMessages, kCompletions };
constexpr Path kAll[] = {Path::kChat, Path::kResponses, Path::kMessages, Path::kCompletions};

// The smallest request of each protocol with these fields.
Result<GenerationRequest> parse(Path path, const std::string& fields) {
  const std::string messages = R"({"model":"m","messages":[{"role":"user","content":"hi"}],)" + fields + "}";
  switch (path) {
    case Path::kChat: {
      ASSIGN_OR_RETURN(GenerationRequest request, parse_chat_request(messages, "m"));
      return request;
    }
    case Path::kMessages: {
      ASSIGN_OR_RETURN(GenerationRequest request, parse_messages_request(messages, "m"));
      return request;
    }
    case Path::kResponses: {
      ResponsesContext context;
      context.served_model = "m";
      const Result<JsonValue> body = parse_json(R"({"model":"m","input":"hi",)" + fields + "}");
      EXPECT_TRUE(body.ok()) << fields;
      ASSIGN_OR_RETURN(GenerationRequest request, parse_responses_request(*body, context));
      return request;
    }
    case Path::kCompletions: {
      ASSIGN_OR_RETURN(GenerationRequest request,
                       parse_completions_request(R"({"model":"m","prompt":"hi",)" + fields + "}", "m"));
      return request;
    }
  }
  return Error(Code::kInternal, "no path");
}

std::string said(const Result<GenerationRequest>& request) {
  return request.ok() ? "accepted" : request.error().message();
}

TEST(ForeignFields, WhatIsNotDoneIsRefusedByName) {
  const std::pair<std::vector<Path>, std::vector<const char*>> kRefused[] = {
      {{kAll, std::end(kAll)},
       {R"("repeat_penalty":1.8)", R"("bad_words":[" red"])", R"("use_beam_search":true)", R"("typical_p":0.5)",
        R"("mirostat":2)", R"("logits_processors":["a"])", R"("include_stop_str_in_output":true)",
        R"("skip_special_tokens":false)", R"("truncate_prompt_tokens":5)", R"("prompt_logprobs":0)",
        R"("return_token_ids":true)", R"("chat_template":"x")", R"("include_reasoning":false)", R"("lora_path":"x")",
        R"("structured_outputs":{"regex":"a","whitespace_pattern":" "})",
        R"("structured_outputs":{"regex":"a","disable_any_whitespace":true})",
        R"("structured_outputs":{"regex":"a","disable_additional_properties":true})"}},
      {{Path::kChat},
       {R"("modalities":["text","audio"])", R"("audio":{"voice":"x"})",
        R"("web_search_options":{"user_location":null})", R"("best_of":3)", R"("documents":[{"text":"x"}])",
        R"("add_generation_prompt":false)"}},
      {{Path::kCompletions}, {R"("best_of":3)"}},
      {{Path::kResponses}, {R"("conversation":"c")", R"("prompt":{"id":"p"})", R"("max_tool_calls":1)"}},
      {{Path::kMessages}, {R"("mcp_servers":[{"type":"url","url":"x"}])", R"("container":"c")"}},
  };
  for (const auto& [paths, bodies] : kRefused) {
    for (const Path path : paths) {
      for (const std::string body : bodies) {
        const auto request = parse(path, body);
        ASSERT_FALSE(request.ok()) << body;
        EXPECT_EQ(request.error().code(), Code::kUnimplemented) << body << said(request);
        const size_t quote = body.find('"', 1);
        EXPECT_NE(request.error().message().find(body.substr(1, quote - 1)), std::string::npos) << said(request);
      }
    }
  }
}

TEST(ForeignFields, ValuesThatAskForNothingAreTaken) {
  for (const char* body : {R"("repeat_penalty":1)",
                           R"("repeat_penalty":1.0)",
                           R"("bad_words":[])",
                           R"("use_beam_search":false)",
                           R"("typical_p":1)",
                           R"("mirostat":0)",
                           R"("skip_special_tokens":true)",
                           R"("lora_path":null)",
                           R"("mcp_servers":[])",
                           R"("modalities":["text"])",
                           R"("web_search_options":null)",
                           R"("include_reasoning":true)",
                           R"("top_n_sigma":-1)",
                           R"("logits_processors":null)",
                           R"("best_of":1)",
                           R"("min_tokens":0)",
                           R"("repetition_penalty":1)",
                           R"("ignore_eos":false)",
                           R"("stop_token_ids":[])",
                           R"("add_generation_prompt":true)"}) {
    for (const Path path : kAll) EXPECT_EQ(said(parse(path, body)), "accepted") << body;
  }
}

TEST(ForeignFields, TokenRulesAndSaltsAreReadOnEveryPath) {
  for (const Path path : kAll) {
    const auto request =
        parse(path, R"("min_tokens":25,"ignore_eos":true,"stop_token_ids":[3,4],"allowed_token_ids":[5],
                 "repetition_penalty":1.8,"cache_salt":"s","max_new_tokens":7,"stop":"x","stop_sequences":["x"])");
    ASSERT_TRUE(request.ok()) << said(request);
    EXPECT_EQ(request->min_tokens, 25);
    EXPECT_TRUE(request->ignores_end);
    EXPECT_EQ(request->stop_token_ids, (std::vector<TokenId>{3, 4}));
    EXPECT_EQ(request->allowed_token_ids, std::vector<TokenId>{5});
    EXPECT_EQ(request->sampling.repetition_penalty, 1.8);
    EXPECT_EQ(request->cache_salt, "s");
    EXPECT_EQ(request->max_tokens, 7);
    EXPECT_EQ(request->stop_sequences, std::vector<std::string>{"x"});
  }
  EXPECT_EQ(parse(Path::kChat, R"("n_predict":9,"max_tokens":8)")->max_tokens, 8);
  EXPECT_EQ(parse(Path::kChat, R"("n_predict":3,"max_tokens":8)")->max_tokens, 3);
}

TEST(ForeignFields, TokenRulesOutOfRangeAreRefused) {
  std::string many = R"("stop_token_ids":[1)";
  for (int i = 0; i < 16384; ++i) many += ",1";
  for (const std::string& body :
       {std::string(R"("min_tokens":-1)"), std::string(R"("min_tokens":1.5)"), std::string(R"("repetition_penalty":0)"),
        std::string(R"("repetition_penalty":2.5)"), std::string(R"("stop_token_ids":[-1])"),
        std::string(R"("stop_token_ids":[4294967299])"), std::string(R"("allowed_token_ids":[])"),
        std::string(R"("stop_token_ids":"x")"), std::string(R"("cache_salt":5)"), std::string(R"("max_new_tokens":0)"),
        many + "]"}) {
    for (const Path path : kAll) {
      const auto request = parse(path, body);
      ASSERT_FALSE(request.ok()) << body;
      EXPECT_EQ(request.error().code(), Code::kInvalidArgument) << said(request);
    }
  }
}

TEST(ForeignFields, GrammarsOfOtherServersAreKept) {
  using Kind = OutputGrammar::Kind;
  for (const Path path : kAll) {
    EXPECT_EQ(parse(path, R"("regex":"[0-9]+")")->grammar->kind, Kind::kRegex);
    EXPECT_EQ(parse(path, R"("ebnf":"root ::= \"yes\"")")->grammar->text, "root ::= \"yes\"");
    EXPECT_EQ(parse(path, R"("grammar":"root ::= \"yes\"")")->grammar->kind, Kind::kEbnf);
    EXPECT_EQ(to_json(parse(path, R"("json_schema":{"type":"null"})")->grammar->value), R"({"type":"null"})");
    EXPECT_EQ(to_json(parse(path, R"("json_schema":"{\"type\":\"null\"}")")->grammar->value), R"({"type":"null"})");
    EXPECT_FALSE(parse(path, R"("json_schema":"no JSON")").ok());
    EXPECT_FALSE(parse(path, R"("regex":"a","ebnf":"b")").ok());
  }
}

TEST(ForeignFields, ThinkingIsSwitchedByTheNamesOfOthers) {
  for (const Path path : {Path::kChat, Path::kResponses, Path::kMessages}) {
    EXPECT_TRUE(parse(path, R"("user":"x")")->conversation.thinking);
    EXPECT_FALSE(parse(path, R"("enable_thinking":false)")->conversation.thinking);
    EXPECT_FALSE(parse(path, R"("think":false)")->conversation.thinking);
    EXPECT_EQ(parse(path, R"("think":"low")")->conversation.reasoning_effort, ReasoningEffort::kLow);
    EXPECT_FALSE(parse(path, R"("think":"loud")").ok());
  }
}

TEST(ForeignFields, AForcedCallNeedsATool) {
  for (const char* choice : {R"("required")", R"({"type":"function","function":{"name":"f"}})",
                             R"({"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[]}})"}) {
    EXPECT_FALSE(parse(Path::kChat, fmt::format(R"("tool_choice":{})", choice)).ok()) << choice;
  }
  for (const char* choice : {R"("required")", R"({"type":"function","name":"f"})",
                             R"({"type":"allowed_tools","mode":"required","tools":[]})"}) {
    EXPECT_FALSE(parse(Path::kResponses, fmt::format(R"("tool_choice":{})", choice)).ok()) << choice;
  }
  for (const char* choice : {R"({"type":"any"})", R"({"type":"tool","name":"f"})"}) {
    EXPECT_FALSE(parse(Path::kMessages, fmt::format(R"("tool_choice":{})", choice)).ok()) << choice;
  }
  for (const Path path : {Path::kChat, Path::kResponses}) {
    EXPECT_EQ(said(parse(path, R"("tool_choice":"auto","tools":[])")), "accepted");
  }
}

TEST(ForeignFields, AByteOrderMarkIsNoFaultAndTooManyFieldsAre) {
  const std::string body = R"({"model":"m","messages":[{"role":"user","content":"hi"}]})";
  EXPECT_TRUE(parse_chat_request("\xef\xbb\xbf" + body, "m").ok());
  std::string fields = R"("x0":1)";
  for (int i = 1; i < 1024; ++i) fields += fmt::format(R"(,"x{}":1)", i);
  EXPECT_EQ(said(parse(Path::kChat, fields)), "invalid request body: found 1026 fields, expected at most 1024");
}

TEST(ForeignFields, ThinkingCanBeHidden) {
  const std::string body = R"({"model":"m","messages":[{"role":"user","content":"hi"}],"thinking":{"type":"adaptive")";
  EXPECT_TRUE(parse_messages_request(body + R"(,"display":"omitted"}})", "m")->hides_thinking);
  EXPECT_FALSE(parse_messages_request(body + R"(,"display":"summarized"}})", "m")->hides_thinking);
  EXPECT_FALSE(parse_messages_request(body + R"(,"display":"loud"}})", "m").ok());
}

// ---- Continuing an answer ----

TEST(ForeignFields, ChatContinuesTheFinalMessage) {
  const auto ask = [](const std::string& fields) {
    return parse_chat_request(
        R"({"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"Once"}])" + fields +
            "}",
        "m");
  };
  const auto continued = ask(R"(,"continue_final_message":true,"add_generation_prompt":false,"echo":true)");
  ASSERT_TRUE(continued.ok());
  EXPECT_TRUE(continued->conversation.messages.back().is_prefix);
  EXPECT_EQ(continued->echo, "Once");
  EXPECT_TRUE(ask(R"(,"continue_final_message":true)")->echo.empty());
  EXPECT_FALSE(ask("")->conversation.messages.back().is_prefix);
  EXPECT_EQ(ask(R"(,"echo":true)")->echo, "");  // a new message begins
  EXPECT_FALSE(ask(R"(,"continue_final_message":true,"add_generation_prompt":true)").ok());
  EXPECT_FALSE(parse(Path::kChat, R"("continue_final_message":true)").ok());  // the user's
}

TEST(ForeignFields, MessagesContinueALastMessageOfTheAssistant) {
  const auto ask = [](const std::string& fields) {
    return parse_messages_request(
        R"({"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"Once"}])" + fields +
            "}",
        "m");
  };
  const auto request = ask("");
  ASSERT_TRUE(request.ok()) << request.error().message();
  EXPECT_TRUE(request->conversation.messages.back().is_prefix);
  EXPECT_TRUE(render(request->conversation).text.ends_with("</think>Once"));
  EXPECT_TRUE(render(ask(R"(,"thinking":{"type":"enabled"})")->conversation).text.ends_with("<think></think>Once"));
  const std::string tools = R"(,"tools":[{"name":"f","input_schema":{"type":"object"}}])";
  EXPECT_TRUE(ask(tools).ok());
  EXPECT_FALSE(ask(tools + R"(,"tool_choice":{"type":"any"})").ok());
  EXPECT_FALSE(ask(R"(,"output_format":{"type":"json_schema","schema":{}})").ok());
}

// ---- Functions, custom tools, allowed tools of Chat ----

Result<ChatRequest> chat(const std::string& messages, const std::string& fields) {
  return parse_chat_request(
      R"({"model":"m","messages":[{"role":"user","content":"hi"})" + messages + "]," + fields + "}", "m");
}

TEST(ForeignFields, FunctionsAreTools) {
  const std::string functions =
      R"("functions":[{"name":"f","description":"d","parameters":{"type":"object"}},{"name":"g"}])";
  const auto request = chat("", functions + R"(,"function_call":{"name":"f"})");
  ASSERT_TRUE(request.ok()) << request.error().message();
  EXPECT_TRUE(request->legacy_functions);
  EXPECT_FALSE(request->parallel_tool_calls);
  ASSERT_EQ(request->conversation.tools.size(), 1u);
  EXPECT_EQ(request->conversation.tools[0].description, "d");
  EXPECT_EQ(request->conversation.tool_choice, ToolChoice::kRequired);
  EXPECT_EQ(chat("", functions + R"(,"function_call":"none")")->conversation.tool_choice, ToolChoice::kNone);
  EXPECT_FALSE(chat("", functions + R"(,"tools":[{"type":"function","function":{"name":"f"}}])").ok());
  EXPECT_FALSE(chat("", functions + R"(,"function_call":"required")").ok());
  const auto history =
      chat(R"(,{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"a\": 1}"}},
                              {"role":"function","name":"f","content":"2"})",
           functions);
  ASSERT_TRUE(history.ok()) << history.error().message();
  EXPECT_EQ(history->conversation.messages[1].tool_calls[0].arguments, "{\"a\": 1}");
  EXPECT_EQ(history->conversation.messages[2].role, Role::kTool);
}

TEST(ForeignFields, ChatHasCustomToolsAndAllowedOnes) {
  const std::string tools = R"("tools":[{"type":"custom","custom":{"name":"sh","description":"d","format":
      {"type":"grammar","grammar":{"syntax":"regex","definition":"a+"}}}},
      {"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}])";
  const auto request =
      chat(R"(,{"role":"assistant","tool_calls":[{"id":"a","type":"custom","custom":{"name":"sh","input":"ls"}}]},
                              {"role":"tool","tool_call_id":"a","content":"x"})",
           tools);
  ASSERT_TRUE(request.ok()) << request.error().message();
  EXPECT_EQ(request->conversation.tools[0].kind, ToolKind::kCustom);
  EXPECT_EQ(request->conversation.messages[1].tool_calls[0].arguments, R"({"input": "ls"})");
  const auto allowed = chat("", tools + R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required",
      "tools":[{"type":"function","function":{"name":"g"}},{"type":"custom","custom":{"name":"sh"}}]}})");
  ASSERT_TRUE(allowed.ok()) << allowed.error().message();
  EXPECT_EQ(allowed->conversation.tools.size(), 2u);
  EXPECT_EQ(allowed->conversation.tool_choice, ToolChoice::kRequired);
  const auto custom = chat("", tools + R"(,"tool_choice":{"type":"custom","custom":{"name":"sh"}})");
  ASSERT_TRUE(custom.ok()) << custom.error().message();
  EXPECT_EQ(custom->conversation.tools.size(), 1u);
  EXPECT_FALSE(chat("", tools + R"(,"tool_choice":{"type":"magic"})").ok());
}

}  // namespace
}  // namespace deepinfer
