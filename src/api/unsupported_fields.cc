// Fields that change the answer where other servers read them, and that are not done here. To ignore one would give a
// wrong answer without a word (docs/api.md).
#include "api/fields.h"
#include "api/request_fields.h"

namespace deepinfer {
namespace {

struct UnsupportedField {
  std::string_view name;
  unsigned paths;
  std::string_view neutral;  // a value that asks for nothing, as JSON; beside false, [] and {}
  std::string_view instead;  // why, or what to do
};

constexpr std::string_view kSampling = "leave it out; temperature, top_p, top_k, min_p and penalties are done";
constexpr std::string_view kNoAudio = "this model reads and writes text only";

constexpr UnsupportedField kFields[] = {
    // OpenAI
    {"modalities", kChatPath, R"(["text"])", kNoAudio},
    {"audio", kChatPath, "", kNoAudio},
    {"web_search_options", kChatPath, "", "this server searches nothing"},
    {"conversation", kResponsesPath, "", "use previous_response_id"},
    {"prompt", kResponsesPath, "", "templates are not kept here; send the text as input or instructions"},
    {"max_tool_calls", kResponsesPath, "", "this server runs no tools, so it has nothing to count"},
    // Anthropic
    {"mcp_servers", kMessagesPath, "", "this server calls no others; declare the tools and run them"},
    {"container", kMessagesPath, "", "this server runs no code"},
    // vLLM, SGLang, llama.cpp, TGI
    {"repeat_penalty", kAnyPath, "1", "use repetition_penalty, which looks at the whole prompt and answer"},
    {"bad_words", kAnyPath, "", "give the ids of the words a logit_bias of -100"},
    {"use_beam_search", kAnyPath, "", kSampling},
    {"typical_p", kAnyPath, "1", kSampling},
    {"top_a", kAnyPath, "0", kSampling},
    {"tfs_z", kAnyPath, "1", kSampling},
    {"mirostat", kAnyPath, "0", kSampling},
    {"dynatemp_range", kAnyPath, "0", kSampling},
    {"dry_multiplier", kAnyPath, "0", kSampling},
    {"xtc_probability", kAnyPath, "0", kSampling},
    {"top_n_sigma", kAnyPath, "-1", kSampling},
    {"logits_processors", kAnyPath, "", kSampling},
    {"custom_logit_processor", kAnyPath, "", kSampling},
    {"include_stop_str_in_output", kAnyPath, "", "what ends an answer is not part of it"},
    {"no_stop_trim", kAnyPath, "", "what ends an answer is not part of it"},
    {"skip_special_tokens", kAnyPath, "true", "control tokens are not part of the text"},
    {"truncate_prompt_tokens", kAnyPath, "", "shorten the messages; Responses has truncation"},
    {"prompt_logprobs", kAnyPath, "", "log probabilities are those of the answer"},
    {"return_token_ids", kAnyPath, "", "use /tokenize"},
    {"return_tokens_as_token_ids", kAnyPath, "", "use /tokenize"},
    {"chat_template", kAnyPath, "", "the prompt's form is the model's own"},
    {"documents", kChatPath, "", "put their text into a message"},
    {"include_reasoning", kAnyPath, "true", "leave reasoning_content unread, or turn thinking off"},
    {"separate_reasoning", kAnyPath, "true", "reasoning and answer are always told apart"},
    {"lora_path", kAnyPath, "", "this server has one model"},
};

bool asks_for_nothing(const JsonRef& field, std::string_view neutral) {
  const JsonValue& value = *field.value();
  if (!neutral.empty()) {
    const Result<JsonValue> same = parse_json(neutral);
    if (value == *same) return true;
    if (value.number() && value.number() == same->number()) return true;  // 1 and 1.0
    if (same->boolean()) return false;
  }
  const bool empty =
      (value.array() != nullptr && value.array()->empty()) || (value.object() != nullptr && value.object()->empty());
  return empty || value.boolean() == false;
}

}  // namespace

Status check_unsupported(const JsonRef& body, Path path) {
  for (const UnsupportedField& known : kFields) {
    if ((known.paths & path) == 0) continue;
    const JsonRef field = body[known.name];
    if (!given(field) || asks_for_nothing(field, known.neutral)) continue;
    return unsupported(field.path(), known.instead);
  }
  return {};
}

}  // namespace deepinfer
