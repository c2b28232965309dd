// What answers say does not depend on drafts: tokens, ends and log probabilities of the mini's held-out
// prompts with every proposer, under concurrency, pre-emption, prefix hits and both depths, are those without
// drafts. Built twice: a part of the prompts for the fast suite, all of them for the slow one.
#include <condition_variable>
#include <cstdio>
#include <fstream>

#include "../engine/engine_support.h"
#include "grammar/grammar.h"
#include "json/json.h"
#include "source_path.h"

namespace deepinfer {
namespace {

constexpr int64_t kPrompts = SPECULATION_PROMPTS;
constexpr int32_t kEndOfAnswer = 1, kAssistant = 2034;

// Every beginning of a held-out conversation that ends where an answer begins; when there are no more, a few tokens
// later.
std::vector<std::vector<int32_t>> held_out_prompts(int64_t count) {
  std::vector<std::vector<int32_t>> prompts;
  for (const size_t into_answer : {0, 4}) {
    std::ifstream file(source_path("models/mini/golden/teacher.jsonl"));
    for (std::string line; std::getline(file, line) && std::ssize(prompts) < count;) {
      const auto document = parse_json(line);
      if (!document.ok()) ADD_FAILURE() << document.error().message();
      std::vector<int32_t> ids;
      for (const JsonValue& id : *document->find("ids")->array()) {
        ids.push_back(static_cast<int32_t>(*id.int64()));
        const bool ends = ids.size() > 2 + into_answer && ids[ids.size() - 2 - into_answer] == kAssistant;
        if (ends && std::ssize(prompts) < count) prompts.push_back(ids);
      }
    }
  }
  EXPECT_EQ(std::ssize(prompts), count);
  return prompts;
}

// Greedy and seeded, with filters, penalties, biases, log probabilities, short limits, stops, and several
// answers.
EngineRequest request_of(const std::vector<int32_t>& prompt, int64_t i) {
  EngineRequest request;
  request.prompt_ids = prompt;
  request.max_tokens = i % 6 == 5 ? 1 + i % 9 : 48;
  request.stop_ids = {kEndOfAnswer};
  if (i % 11 == 3) request.stop_ids.push_back(16);  // frequent, so it falls among accepted drafts
  request.sampling.temperature = i % 2 == 0 ? 0 : (i % 4 == 1 ? 1.0 : 0.7);
  request.sampling.seed = static_cast<uint64_t>(1000 + i);
  if (i % 4 == 1) request.sampling.top_p = 0.95;
  if (i % 8 == 7) request.sampling.top_k = 20;
  if (i % 5 == 2) {
    request.sampling.frequency_penalty = 0.4;
    request.sampling.presence_penalty = -0.2;
  }
  if (i % 9 == 4) request.sampling.logit_bias = {{223, 1.5f}, {16, -3.0f}};
  if (i % 7 == 6) request.top_logprobs = 2;
  if (i % 10 == 9) request.n = 3;
  request.speculation = i % 13 != 12;
  return request;
}

JsonValue read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  const auto value = parse_json(std::string(std::istreambuf_iterator<char>(file), {}));
  EXPECT_TRUE(value.ok()) << path;
  return value.ok() ? *value : JsonValue();
}

// The mini without its draft stages, as a checkpoint of another maker might be; goes with this.
class MiniWithoutDraftStages {
 public:
  MiniWithoutDraftStages()
      : path_(std::filesystem::temp_directory_path() / fmt::format("deepinfer-no-stages-{}", ::getpid())) {
    std::filesystem::create_directories(path_);
    for (const auto& entry : std::filesystem::directory_iterator(model_directory("mini"))) {
      if (entry.is_regular_file()) std::filesystem::copy_file(entry.path(), path_ / entry.path().filename());
    }
    rewrite("config.json", [](JsonValue& config) {
      JsonValue& text = *config.find("text_config");
      *text.find("num_nextn_predict_layers") = JsonValue(0);
      text.find("compress_ratios")->array()->resize(static_cast<size_t>(*text.find("num_hidden_layers")->int64()));
    });
    rewrite("model.safetensors.index.json", [](JsonValue& index) {
      std::erase_if(*index.find("weight_map")->object(),
                    [](const JsonMember& tensor) { return tensor.key.starts_with("mtp."); });
    });
  }
  ~MiniWithoutDraftStages() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  void rewrite(const char* name, const std::function<void(JsonValue&)>& change) const {
    JsonValue value = read_file(path_ / name);
    change(value);
    std::ofstream(path_ / name) << to_json(value);
  }
  const std::filesystem::path path_;
};

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  FinishReason reason = FinishReason::kError;
  int64_t completion_tokens = 0;
  bool operator==(const Answer&) const = default;
};

struct Setting {
  SpeculationOptions speculation;
  int depth = 0;
  int64_t blocks = 0, states = 12, swap_blocks = -1;
  ContextMode mode = ContextMode::kStable;
  bool cache = false;
};

class SpeculationTest : public testing::Test {
 protected:
  void SetUp() override { prompts_ = held_out_prompts(kPrompts); }

  // All answers are to be JSON of this schema.
  void constrain(std::string_view schema) {
    auto tokenizer = Tokenizer::load(model_directory("mini") + "/tokenizer.json");
    ASSERT_TRUE(tokenizer.ok());
    const int64_t vocab = tokenizer->vocab_size();
    GrammarCompiler compiler(*tokenizer, vocab, {kEndOfAnswer}, {});
    const auto spec = prepare_json_schema(*parse_json(schema), "schema");
    ASSERT_TRUE(spec.ok()) << spec.error().message();
    std::promise<GrammarCompiler::Compiled> promise;
    compiler.compile(*spec, [&promise](GrammarCompiler::Compiled result) { promise.set_value(std::move(result)); });
    const auto compiled = promise.get_future().get();
    ASSERT_TRUE(compiled.ok()) << compiled.error().message();
    constraint_ = make_constraint({.grammar = *compiled}, vocab);
  }

  // Puts earlier text before every prompt: `least` tokens or a few more.
  void lengthen_prompts(int64_t least) {
    std::vector<int32_t> before(400, 223);
    for (size_t i = 0; i < prompts_.size(); ++i) {
      const std::vector<int32_t> own = prompts_[i];
      const int64_t missing = least + static_cast<int64_t>(i % 8) - std::ssize(own);
      if (missing > 0) prompts_[i].insert(prompts_[i].begin(), before.end() - missing, before.end());
      before.insert(before.end(), own.begin(), own.end());
    }
  }

  // All prompts through one engine, at most 24 answers submitted at a time.
  std::vector<Answer> run(const Setting& setting, int rounds = 1) {
    auto model = load_model(directory_, {.max_context_tokens = 512,
                                         .max_sequences = setting.states,
                                         .num_blocks = setting.blocks > 0 ? setting.blocks : 80,
                                         .max_batch_tokens = 128});
    Counters counters;
    EngineOptions options;
    options.context_mode = setting.mode;
    options.prefix_cache = setting.cache;
    options.reserve_tokens = 1;
    options.scheduling_depth = setting.depth;
    options.swap_blocks = setting.swap_blocks;
    options.speculation = setting.speculation;
    Engine engine(std::move(model), options, counters);
    std::vector<Answer> answers;
    std::mutex mu;
    std::condition_variable changed;
    int64_t open = 0;
    for (int round = 0; round < rounds; ++round) {
      answers.assign(prompts_.size() * 3, {});
      for (int64_t i = 0; i < std::ssize(prompts_); ++i) {
        EngineRequest request = request_of(prompts_[static_cast<size_t>(i)], i);
        request.constraint = constraint_;
        {
          std::unique_lock lock(mu);
          changed.wait(lock, [&] { return open < 24; });
          open += request.n;
        }
        const auto id = engine.submit(std::move(request), [&, i](const EngineEvent& event) {
          Answer& answer = answers[static_cast<size_t>(3 * i + event.answer_index)];
          if (event.kind == EngineEvent::Kind::kToken) {
            answer.tokens.push_back(event.token_id);
            if (event.logprobs == nullptr) return;
            answer.logprobs.push_back(event.logprobs->chosen.logprob);
            for (const auto& other : event.logprobs->top) answer.logprobs.push_back(other.logprob);
            return;
          }
          answer.reason = event.finish_reason;
          answer.completion_tokens = event.completion_tokens;
          const std::lock_guard lock(mu);
          --open;
          changed.notify_one();
        });
        EXPECT_TRUE(id.ok()) << id.error().message();
      }
      std::unique_lock lock(mu);
      changed.wait(lock, [&] { return open == 0; });
    }
    stats_ = engine.stats();
    return answers;
  }

  void expect_same(const std::vector<Answer>& got, const std::vector<Answer>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    int64_t tokens = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      tokens += std::ssize(got[i].tokens);
      EXPECT_EQ(got[i].tokens, expected[i].tokens) << "prompt " << i / 3 << ", answer " << i % 3;
      EXPECT_TRUE(got[i] == expected[i]) << "prompt " << i / 3 << ", answer " << i % 3;
    }
    int64_t verified = 0, accepted = 0;
    for (size_t k = 0; k < stats_.verified.size(); ++k) {
      verified += stats_.verified[k];
      accepted += stats_.accepted[k];
    }
    std::printf(
        "%lld prompts, %lld tokens; %lld drafts verified, %lld accepted; %lld pre-empted, %lld hits\n",
        static_cast<long long>(kPrompts), static_cast<long long>(tokens), static_cast<long long>(verified),
        static_cast<long long>(accepted),
        static_cast<long long>(stats_.preempted_swap + stats_.preempted_recompute),
        static_cast<long long>(stats_.hits));
    EXPECT_GT(accepted, kPrompts / 2);
    EXPECT_LT(accepted, verified);
  }

  std::string directory_ = model_directory("mini");
  std::vector<std::vector<int32_t>> prompts_;
  std::shared_ptr<const OutputConstraint> constraint_;
  EngineStats stats_;
};

const SpeculationOptions kOff = {.proposer = DraftProposer::kOff};
const SpeculationOptions kFive = {.fixed_drafts = 5};

TEST_F(SpeculationTest, DraftsChangeNoAnswer) {
  const auto expected = run({.speculation = kOff});
  EXPECT_EQ(stats_.drafted, 0);
  expect_same(run({.speculation = kFive}), expected);
  expect_same(run({.speculation = {.fixed_drafts = 2}, .depth = 1}), expected);
  expect_same(run({.speculation = {.proposer = DraftProposer::kNgram, .fixed_drafts = 5}}), expected);
}

TEST_F(SpeculationTest, NorUnderPreemptionBySwapAndRecomputation) {
  lengthen_prompts(122);  // answers grow over the end of a block
  const auto expected = run({.speculation = kOff});
  expect_same(run({.speculation = kFive, .blocks = 7}), expected);
  EXPECT_GT(stats_.preempted_swap, 0);
  expect_same(run({.speculation = kFive, .blocks = 7, .swap_blocks = 0}), expected);
  EXPECT_GT(stats_.preempted_recompute, 0);
}

TEST_F(SpeculationTest, NorWithPrefixHitsInExactMode) {
  lengthen_prompts(140);  // a state is kept at the end of the first block
  const auto expected = run({.speculation = kOff, .mode = ContextMode::kExact});
  // Enough of both that the second round finds the first.
  expect_same(run({.speculation = kFive,
                   .blocks = 400 + 8 * kPrompts,
                   .states = 200 + 4 * kPrompts,
                   .mode = ContextMode::kExact,
                   .cache = true},
                  2),
              expected);
  EXPECT_GT(stats_.hits, kPrompts / 2);
}

// The drafts keep to the grammar themselves, or hardly any would be right.
TEST_F(SpeculationTest, NorUnderAGrammar) {
  constrain(R"({"type":"object","properties":{
      "name":{"type":"string","maxLength":40},"sizes":{"type":"array","items":{"type":"integer"},"maxItems":6},
      "kind":{"enum":["red","green","blue"]},"note":{"type":"string","minLength":1,"maxLength":200}},
      "required":["name","sizes","kind","note"]})");
  const auto expected = run({.speculation = kOff});
  const auto expect_mostly_right = [&](const Setting& setting, int64_t least_percent) {
    expect_same(run(setting), expected);
    EXPECT_GT(100 * stats_.accepted[0], least_percent * stats_.verified[0]);
  };
  expect_mostly_right({.speculation = kFive}, 25);
  expect_mostly_right({.speculation = {.fixed_drafts = 2}, .depth = 1}, 25);
  expect_mostly_right({.speculation = {.proposer = DraftProposer::kNgram, .fixed_drafts = 5}}, 25);
}

TEST_F(SpeculationTest, WithoutDraftStagesCopiesAreProposed) {
  const auto expected = run({.speculation = kOff});
  const MiniWithoutDraftStages mini;
  directory_ = mini.path();
  EXPECT_TRUE(run({.speculation = kFive}) == expected);  // of DSpark there are none
  EXPECT_EQ(stats_.drafted, 0);
  expect_same(run({.speculation = {.proposer = DraftProposer::kNgram, .fixed_drafts = 5}}), expected);
}

TEST_F(SpeculationTest, ScheduledDraftsChangeNoAnswerEither) {
  const auto expected = run({.speculation = kOff});
  const auto got = run({.speculation = {}});
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i] == expected[i]) << "prompt " << i / 3;
  EXPECT_GT(stats_.drafted, 0);
}

}  // namespace
}  // namespace deepinfer
