// POST /tokenize, /detokenize and /render: what a request becomes, without running it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/chat_request.h"

namespace deepinfer {

// {"prompt": text, "add_special_tokens": bool} or a Chat Completions body with "messages".
struct TokenizeRequest {
  std::optional<ChatRequest> chat;
  std::string text;
  bool begin_of_sentence = true;
};
Result<TokenizeRequest> parse_tokenize_request(std::string_view body, std::string_view served_model);
// {"tokens": [ids]}.
Result<std::vector<TokenId>> parse_detokenize_request(std::string_view body);

// {"count","max_model_len","tokens"}.
std::string tokens_to_json(const std::vector<TokenId>& ids, int64_t max_context_tokens);
// {"prompt"}.
std::string text_to_json(std::string_view text);
// {"prompt","control_ranges":[[begin,end]],"output_stage","tokens","count"}; ranges are bytes.
std::string prompt_to_json(const RenderedPrompt& prompt, const std::vector<TokenId>& ids);

}  // namespace deepinfer
