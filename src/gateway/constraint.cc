#include "gateway/constraint.h"

#include <algorithm>
#include <set>

#include "recipe/recipe.h"

namespace deepinfer {
namespace {

bool is_reasoning(OutputStage stage) {
  return stage == OutputStage::kReasoning || stage == OutputStage::kReasoningContinuation;
}

Result<GrammarSpec> prepare(const OutputGrammar& grammar) {
  switch (grammar.kind) {
    case OutputGrammar::Kind::kJsonObject:
      return prepare_json_object();
    case OutputGrammar::Kind::kJsonSchema:
      return prepare_json_schema(grammar.value, grammar.path);
    case OutputGrammar::Kind::kRegex:
      return prepare_regex(grammar.text, grammar.path);
    case OutputGrammar::Kind::kEbnf:
      return prepare_ebnf(grammar.text, grammar.path);
    case OutputGrammar::Kind::kChoice:
      return prepare_choice(grammar.choices, grammar.path);
    case OutputGrammar::Kind::kStructuralTag:
      return prepare_structural_tag(grammar.value, grammar.path);
  }
  return Error(Code::kInternal, "an unknown kind of grammar");
}

// All tools that the model knows in this conversation.
std::vector<CallableTool> callable_tools(const Conversation& conversation, PromptVersion version) {
  const ToolNames names(conversation, version);
  std::vector<CallableTool> tools;
  std::set<std::string> known;
  const auto add = [&](const ToolDefinition& tool, std::string printed) {
    if (!known.insert(printed).second) return;
    const bool has_grammar = !tool.input_syntax.empty();
    std::string path = fmt::format("tools['{}'].{}", printed, has_grammar ? "format.definition" : "parameters");
    tools.push_back({std::move(printed), tool.parameters, tool.strict || has_grammar, std::move(path), tool.input_syntax,
                     tool.input_grammar});
  };
  for (size_t i = 0; i < conversation.tools.size(); ++i) add(conversation.tools[i], names.declared()[i]);
  for (const Message& message : conversation.messages) {
    for (const ToolDefinition& tool : message.tools) add(tool, names.printed(tool.namespace_name, tool.name));
  }
  return tools;
}

// The grammar of the calls, or none when calls are free.
Result<std::optional<GrammarSpec>> prepare_call_grammar(const GenerationRequest& request, OutputStage stage,
                                                       PromptVersion version) {
  const Conversation& conversation = request.conversation;
  const bool forced = conversation.tool_choice == ToolChoice::kRequired;
  CallGrammar calls;
  calls.tools = callable_tools(conversation, version);
  const bool strict = std::any_of(calls.tools.begin(), calls.tools.end(),
                                  [](const CallableTool& tool) { return tool.strict; });
  if (!forced && !strict && !request.constrains_calls && !request.grammar)
    return std::optional<GrammarSpec>();
  const CallMarkup markup = call_markup(version);
  calls.tags = {std::string(markup.mark), std::string(markup.block), std::string(markup.call),
                std::string(markup.parameter)};
  calls.parallel = request.parallel_tool_calls;
  calls.where = stage == OutputStage::kToolCalls ? CallGrammar::Where::kInsideBlock
                : forced                         ? CallGrammar::Where::kAtOnce
                                                 : CallGrammar::Where::kAnywhere;
  if (request.grammar && !forced) {
    const OutputGrammar& grammar = *request.grammar;
    calls.or_path = grammar.path;
    if (grammar.kind == OutputGrammar::Kind::kJsonSchema) {
      calls.or_schema = grammar.value;
    } else if (grammar.kind == OutputGrammar::Kind::kJsonObject) {
      calls.or_schema = JsonValue(JsonValue::Object{{"type", "object"}});
    } else {
      return Error(Code::kInvalidArgument, "{}: with tools, only JSON formats are supported", grammar.path);
    }
  }
  ASSIGN_OR_RETURN(GrammarSpec spec, prepare_calls(calls));
  return std::optional<GrammarSpec>(std::move(spec));
}

}  // namespace

Result<ConstraintPlan> plan_constraint(const GenerationRequest& request, const Tokenizer& tokenizer,
                                       const std::vector<TokenId>& stop_ids, int64_t vocab_size,
                                       const PromptFormat& format) {
  ConstraintPlan plan;
  const Conversation& conversation = request.conversation;
  const bool raw = !request.raw_prompts.empty();
  const bool has_tools = !raw && conversation.tools_active() && !conversation.messages.back().is_prefix;
  if (!request.grammar && !has_tools && !request.thinking_budget) return plan;
  const OutputStage stage = raw ? OutputStage::kContentContinuation : render(conversation, format).output_stage;
  if (has_tools) {
    ASSIGN_OR_RETURN(plan.spec, prepare_call_grammar(request, stage, format.version));
  } else if (request.grammar) {
    ASSIGN_OR_RETURN(plan.spec, prepare(*request.grammar));
  }
  for (const TokenId id : request.trigger_ids) {
    if (id >= vocab_size)
      return Error(Code::kInvalidArgument, "so_args.trigger_token_ids: found {}, expected 0 to {}", id,
                   vocab_size - 1);
  }
  plan.shape.trigger_ids = request.trigger_ids;
  plan.shape.bound_id = request.bound_id;
  const bool thinks = is_reasoning(stage);
  if (thinks && plan.shape.trigger_ids.empty()) {
    const auto end_of_thinking = tokenizer.id_of_added("</think>");
    CHECK(end_of_thinking.has_value());  // the gateway looked when it started
    plan.shape.trigger_ids = {*end_of_thinking};
    plan.shape.free_tokens = request.thinking_budget;
  }
  if (!plan.spec) return plan;
  // What comes before the grammar can't end the answer, nor open a call.
  plan.shape.forbidden_ids = stop_ids;
  if (const auto mark = tokenizer.id_of_added(call_markup().mark); mark && thinks)
    plan.shape.forbidden_ids.push_back(*mark);
  return plan;
}

}  // namespace deepinfer
