#include "api/completions_response.h"

#include "api/chat_response.h"
#include "api/logprobs.h"
#include "api/sse.h"

namespace deepinfer {
namespace {

int64_t num_characters(std::string_view bytes) {
  int64_t count = 0;
  for (const char byte : bytes) count += (static_cast<unsigned char>(byte) & 0xc0) != 0x80 ? 1 : 0;
  return count;
}

// {"text_offset","token_logprobs","tokens","top_logprobs"}; offsets count characters of the choice's text.
void write_columns(JsonWriter& json, const std::vector<ScoredToken>& tokens, int64_t offset) {
  json.begin_object().key("text_offset").begin_array();
  for (const ScoredToken& token : tokens) {
    json.value(offset);
    offset += num_characters(token.chosen.bytes);
  }
  json.end_array().key("token_logprobs").begin_array();
  for (const ScoredToken& token : tokens) json.value(static_cast<double>(token.chosen.logprob));
  json.end_array().key("tokens").begin_array();
  for (const ScoredToken& token : tokens) json.value(token_text(token.chosen.bytes));
  json.end_array().key("top_logprobs").begin_array();
  for (const ScoredToken& token : tokens) {
    json.begin_object();
    for (const ScoredToken::Entry& entry : token.top) {
      json.member(token_text(entry.bytes), static_cast<double>(entry.logprob));
    }
    json.end_object();
  }
  json.end_array().end_object();
}

class CompletionsAnswer : public AnswerWriter {
 public:
  CompletionsAnswer(AnswerIdentity identity, const CompletionsRequest& request)
      : identity_(std::move(identity)),
        stream_(request.stream),
        include_usage_(request.include_usage),
        usage_always_(request.usage_always) {
    for (const RawPrompt& prompt : request.raw_prompts) {
      for (int32_t i = 0; i < request.n; ++i) {
        Choice& choice = choices_.emplace_back();
        if (request.echo) choice.text = prompt.text;
      }
    }
  }

  void start(const Usage& usage, std::string& out) override {
    if (!stream_) return;
    if (usage_always_) usage_so_far_ = &usage;
    for (int32_t i = 0; i < std::ssize(choices_); ++i) {
      Choice& choice = choices_[static_cast<size_t>(i)];
      choice.offset = num_characters(choice.text);
      if (!choice.text.empty()) append_chunk(out, i, choice.text, {}, nullptr, nullptr);
    }
  }

  void add(int32_t answer, const OutputEvent& event, const std::vector<ScoredToken>& tokens,
           std::string& out) override {
    Choice& choice = choices_[static_cast<size_t>(answer)];
    if (!stream_) {
      choice.text += event.text;
      choice.tokens.insert(choice.tokens.end(), tokens.begin(), tokens.end());
      return;
    }
    append_chunk(out, answer, event.text, tokens, nullptr, nullptr);
    for (const ScoredToken& token : tokens) choice.offset += num_characters(token.chosen.bytes);
  }

  void end(int32_t answer, const AnswerEnding& ending, const Usage* total, std::string& out) override {
    if (stream_) {
      append_chunk(out, answer, "", {}, &ending.end, total);
      if (total != nullptr) out += "data: [DONE]\n\n";
      return;
    }
    choices_[static_cast<size_t>(answer)].end = ending.end;
    if (total == nullptr) return;
    JsonWriter json(out);
    write_head(json.begin_object());
    json.key("choices").begin_array();
    for (int32_t i = 0; i < std::ssize(choices_); ++i) {
      const Choice& choice = choices_[static_cast<size_t>(i)];
      write_choice(json, i, choice.text, choice.tokens, 0, &choice.end);
    }
    json.end_array();
    write_chat_usage(json.key("usage"), *total);
    json.end_object();
  }

  void fail(const ApiError& error, std::string& out) override {
    stream_ ? out.append("data: ").append(to_json(error)).append("\n\n") : out += to_json(error);
  }
  bool is_stream() const override { return stream_; }
  bool tells_interruption() const override { return true; }
  std::string_view keep_alive() const override { return stream_ ? kSseKeepAlive : kBlankLine; }

 private:
  struct Choice {
    std::string text;
    std::vector<ScoredToken> tokens;
    int64_t offset = 0;  // characters told so far; streams only
    AnswerEnd end = AnswerEnd::kStop;
  };

  void write_head(JsonWriter& json) const {
    json.member("id", identity_.id)
        .member("object", "text_completion")
        .member("created", identity_.created)
        .member("model", identity_.model)
        .member("system_fingerprint", identity_.system_fingerprint);
  }

  static void write_choice(JsonWriter& json, int32_t index, std::string_view text,
                           const std::vector<ScoredToken>& tokens, int64_t offset, const AnswerEnd* end) {
    json.begin_object().member("index", index).member("text", text).key("logprobs");
    tokens.empty() ? void(json.null()) : write_columns(json, tokens, offset);
    json.key("finish_reason");
    end == nullptr ? json.null() : json.value(finish_reason_name(*end));
    json.end_object();
  }

  void append_chunk(std::string& out, int32_t index, std::string_view text,
                    const std::vector<ScoredToken>& tokens, const AnswerEnd* end, const Usage* usage) const {
    append_frame(out, "", [&](JsonWriter& json) {
      write_head(json);
      json.key("choices").begin_array();
      write_choice(json, index, text, tokens, choices_[static_cast<size_t>(index)].offset, end);
      json.end_array();
      if (usage == nullptr) usage = usage_so_far_;
      if (usage != nullptr) {
        write_chat_usage(json.key("usage"), *usage);
      } else if (include_usage_) {
        json.key("usage").null();
      }
    });
  }

  const AnswerIdentity identity_;
  const bool stream_;
  const bool include_usage_;
  const bool usage_always_;
  const Usage* usage_so_far_ = nullptr;  // set: every chunk has it
  std::vector<Choice> choices_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_completions_writer(AnswerIdentity identity,
                                                      const CompletionsRequest& request) {
  return std::make_unique<CompletionsAnswer>(std::move(identity), request);
}

}  // namespace deepinfer
