#include "grammar/grammar.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <thread>

#include "source_path.h"

namespace deepinfer {
namespace {

// The vocabulary of models/mini.
class GrammarTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto tokenizer = Tokenizer::load(source_path("models/mini/tokenizer.json"));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
    tokenizer_ = new Tokenizer(std::move(*tokenizer));
    mark_ = tokenizer_->id_of_added("｜DSML｜").value_or(-1);
    end_ = tokenizer_->id_of_added("<｜end▁of▁sentence｜>").value_or(-1);
    ASSERT_GE(mark_, 0);
    ASSERT_GE(end_, 0);
    compiler_ = make_compiler({}).release();
  }
  static void TearDownTestSuite() {
    delete compiler_;
    delete tokenizer_;
  }

  static std::unique_ptr<GrammarCompiler> make_compiler(GrammarOptions options) {
    if (options.worker.empty()) options.worker = {GRAMMAR_TEST_WORKER};
    return std::make_unique<GrammarCompiler>(*tokenizer_, tokenizer_->vocab_size(), std::vector{end_}, std::vector{mark_},
                                             options);
  }
  static GrammarCompiler::Compiled compile(const Result<GrammarSpec>& spec,
                                           GrammarCompiler& compiler = *compiler_) {
    if (!spec.ok()) return spec.error();
    std::promise<GrammarCompiler::Compiled> promise;
    compiler.compile(*spec,
                     [&promise](GrammarCompiler::Compiled result) { promise.set_value(std::move(result)); });
    return promise.get_future().get();
  }
  static std::unique_ptr<ConstraintState> start(const Result<GrammarSpec>& spec) {
    const auto compiled = compile(spec);
    EXPECT_TRUE(compiled.ok()) << compiled.error().message();
    if (!compiled.ok()) return nullptr;
    return make_constraint({.grammar = *compiled}, tokenizer_->vocab_size())->start();
  }
  static bool is_allowed(ConstraintState& state, TokenId id) {
    std::vector<uint32_t> mask(static_cast<size_t>(mask_words(tokenizer_->vocab_size())));
    return !state.fill_mask(mask) || (mask[static_cast<size_t>(id) / 32] >> id % 32 & 1) != 0;
  }
  // Whether the whole text may be said, then the answer's end; masks and accept must agree at every token.
  static bool says(const Result<GrammarSpec>& spec, std::string_view text) {
    const auto state = start(spec);
    if (state == nullptr) return false;
    for (const TokenId id : tokenizer_->encode(text)) {
      const bool allowed = is_allowed(*state, id);
      EXPECT_EQ(state->accept(id).ok(), allowed) << text;
      if (!allowed) return false;
    }
    return is_allowed(*state, end_) && state->accept(end_).ok();
  }
  static Result<GrammarSpec> schema(std::string_view text) {
    const auto value = parse_json(text);
    EXPECT_TRUE(value.ok());
    return prepare_json_schema(*value, "schema");
  }

  static Tokenizer* tokenizer_;
  static GrammarCompiler* compiler_;
  static TokenId mark_, end_;
};
Tokenizer* GrammarTest::tokenizer_ = nullptr;
GrammarCompiler* GrammarTest::compiler_ = nullptr;
TokenId GrammarTest::mark_ = -1;
TokenId GrammarTest::end_ = -1;

TEST_F(GrammarTest, ASchemaAdmitsItsValuesAndNoOthers) {
  const auto spec = schema(
      R"({"type":"object","properties":{"name":{"type":"string","maxLength":3},"n":{"type":"integer","minimum":2,"maximum":40}},"required":["name"]})");
  EXPECT_TRUE(says(spec, R"({"name": "abc", "n": 40})"));
  EXPECT_TRUE(says(spec, "{\n  \"name\": \"é\"\n}"));
  EXPECT_FALSE(says(spec, "{\"name\": \"a\x03\"}"));
  EXPECT_FALSE(says(spec, R"({"name": "abcd"})"));
  EXPECT_FALSE(says(spec, R"({"name": "a", "n": 41})"));
  EXPECT_FALSE(says(spec, R"({"n": 3})"));
  EXPECT_FALSE(says(spec, R"({"name": "a", "x": 1})"));
  EXPECT_FALSE(says(spec, R"({"name": "a")"));
  EXPECT_TRUE(says(prepare_json_object(), R"({"a": [1, {"b": null}]})"));
  EXPECT_FALSE(says(prepare_json_object(), "[1]"));
}

// Below and above the number up to which the library writes counts out.
TEST_F(GrammarTest, CountedStringsHoldNoRawControlCharacters) {
  const std::string as(150, 'a');
  for (const std::string_view counted :
       {R"({"type":"string","maxLength":20})", R"({"type":"string","maxLength":200})",
        R"({"type":"string","minLength":3,"maxLength":151})", R"({"type":"string","minLength":2})",
        R"({"type":"string","pattern":"^.{2,140}$"})", R"({"type":"string","pattern":"^[^x]{0,160}$"})"}) {
    const auto spec = schema(counted);
    EXPECT_TRUE(says(spec, "\"a\u00e9 b\"")) << counted;
    for (const std::string_view bad : {"\x01", "\t", "\n", "\r", "\x1f", "\"x"}) {
      EXPECT_FALSE(says(spec, fmt::format("\"aa{}a\"", bad))) << counted << ", byte " << int{bad[0]};
    }
  }
  EXPECT_TRUE(says(schema(R"({"type":"string","minLength":3,"maxLength":150})"), "\"" + as + "\""));
  EXPECT_FALSE(says(schema(R"({"type":"string","minLength":3,"maxLength":149})"), "\"" + as + "\""));
  EXPECT_TRUE(says(schema(R"({"type":"string","minLength":150})"), "\"" + as + "\""));
  EXPECT_FALSE(says(schema(R"({"type":"string","minLength":151})"), "\"" + as + "\""));
  EXPECT_TRUE(says(schema(R"({"type":"string","pattern":"^a{130,150}$"})"), "\"" + as + "\""));
  EXPECT_FALSE(says(schema(R"({"type":"string","pattern":"^a{130,149}$"})"), "\"" + as + "\""));
  for (const auto& [range, fits] :
       {std::pair("{3,149}", false), std::pair("{3,150}", true), std::pair("{150,300}", true),
        std::pair("{151,300}", false), std::pair("{129,}", true), std::pair("{151,}", false)}) {
    EXPECT_EQ(says(prepare_regex(fmt::format("(?:a|b){}", range), "r"), as), fits) << range;
  }
  EXPECT_TRUE(says(prepare_regex("(a|b){150}", "r"), as));
  EXPECT_FALSE(says(prepare_regex("(a|b){151}", "r"), as));
  // White space between the tokens of JSON is not what is meant.
  EXPECT_TRUE(says(schema(R"({"type":"object","properties":{"a":{"type":"string","maxLength":200}}})"),
                   "{\n\t\"a\":\t\"b\"\n}"));
}

TEST_F(GrammarTest, RegexEbnfAndChoices) {
  EXPECT_TRUE(says(prepare_regex("^[a-f]{2,4}$", "r"), "cafe"));
  EXPECT_FALSE(says(prepare_regex("^[a-f]{2,4}$", "r"), "cafeb"));
  EXPECT_TRUE(says(prepare_regex("(?:bc+)?z", "r"), "bccz"));
  EXPECT_FALSE(says(prepare_regex("(?:bc+)?z", "r"), "ccz"));
  EXPECT_TRUE(says(prepare_ebnf("root ::= \"yes\" | \"no\" root", "g"), "nonoyes"));
  EXPECT_FALSE(says(prepare_ebnf("root ::= \"yes\" | \"no\" root", "g"), "no"));
  EXPECT_TRUE(says(prepare_choice({"red", "blue"}, "c"), "blue"));
  EXPECT_FALSE(says(prepare_choice({"red", "blue"}, "c"), "green"));
}

TEST_F(GrammarTest, WhiteSpaceBetweenJsonTokensComesToAnEnd) {
  const auto state = start(schema(R"({"type":"array","items":{"type":"null"}})"));
  ASSERT_NE(state, nullptr);
  const TokenId space = tokenizer_->encode(" ")[0], open = tokenizer_->encode("[")[0],
                close = tokenizer_->encode("]")[0];
  ASSERT_TRUE(state->accept(open).ok());
  int spaces = 0;
  for (; is_allowed(*state, space); ++spaces) ASSERT_TRUE(state->accept(space).ok());
  EXPECT_EQ(spaces, 8);
  EXPECT_FALSE(state->accept(space).ok());
  state->rollback(1);
  EXPECT_TRUE(is_allowed(*state, space));
  EXPECT_TRUE(is_allowed(*state, close));
  // Where nothing else can be said, it may.
  const auto padded = start(schema(R"({"type":"string","pattern":"^ {12}$"})"));
  const TokenId quote = tokenizer_->encode("\"")[0];
  ASSERT_TRUE(padded->accept(quote).ok());
  for (int i = 0; i < 11; ++i) ASSERT_TRUE(is_allowed(*padded, space) && padded->accept(space).ok()) << i;
}

TEST_F(GrammarTest, ControlTokensAreNoText) {
  const auto state = start(prepare_regex(".*", "r"));
  ASSERT_NE(state, nullptr);
  EXPECT_FALSE(is_allowed(*state, tokenizer_->id_of_added("</think>").value()));
  EXPECT_TRUE(is_allowed(*state, end_));
}

CallGrammar calls(CallGrammar::Where where) {
  CallGrammar out;
  out.where = where;
  out.tags = {"｜DSML｜", " calls", " invoke", " parameter"};
  out.tools.push_back(
      {"add",
       *parse_json(
           R"({"type":"object","properties":{"a":{"type":"integer"},"note":{"type":["string","null"]},"unit":{"enum":["m","km"]}},"required":["a"]})"),
       true, "tools[0]"});
  out.tools.push_back({"now",
                       *parse_json(R"({"type":"object","properties":{}, "additionalProperties": false})"),
                       true, "tools[1]"});
  return out;
}
constexpr std::string_view kAdd =
    "<｜DSML｜ invoke name=\"add\">\n<｜DSML｜ parameter name=\"a\" string=\"false\">12</｜DSML｜ "
    "parameter>\n"
    "<｜DSML｜ parameter name=\"note\" string=\"true\">a < b, \"raw\"\n</｜DSML｜ parameter>\n</｜DSML｜ "
    "invoke>";
constexpr std::string_view kNow = "<｜DSML｜ invoke name=\"now\">\n\n</｜DSML｜ invoke>";
constexpr std::string_view kEnd = "\n</｜DSML｜ calls>";

TEST_F(GrammarTest, CallsAreSpeltAsTheRecipeSpellsThem) {
  const auto inside = prepare_calls(calls(CallGrammar::Where::kInsideBlock));
  EXPECT_TRUE(says(inside, fmt::format("{}{}", kAdd, kEnd)));
  EXPECT_TRUE(says(inside, fmt::format("{}\n{}{}", kAdd, kNow, kEnd)));
  EXPECT_FALSE(says(inside, kEnd));
  EXPECT_FALSE(says(inside, "text"));
  std::string wrong_type(kAdd);
  wrong_type.replace(wrong_type.find("12"), 2, "\"x\"");
  EXPECT_FALSE(says(inside, fmt::format("{}{}", wrong_type, kEnd)));
  std::string unknown(kNow);
  unknown.replace(unknown.find("now"), 3, "not");
  EXPECT_FALSE(says(inside, fmt::format("{}{}", unknown, kEnd)));

  const auto at_once = prepare_calls(calls(CallGrammar::Where::kAtOnce));
  EXPECT_TRUE(says(at_once, fmt::format("\n\n<｜DSML｜ calls>\n{}{}", kNow, kEnd)));
  EXPECT_FALSE(says(at_once, fmt::format("Well\n\n<｜DSML｜ calls>\n{}{}", kNow, kEnd)));

  CallGrammar serial = calls(CallGrammar::Where::kInsideBlock);
  serial.parallel = false;
  EXPECT_FALSE(says(prepare_calls(serial), fmt::format("{}\n{}{}", kNow, kNow, kEnd)));
}

TEST_F(GrammarTest, TextMayStandBeforeABlockWhereNothingIsForced) {
  const auto spec = prepare_calls(calls(CallGrammar::Where::kAnywhere));
  EXPECT_TRUE(says(spec, "No call is needed."));
  EXPECT_TRUE(says(spec, fmt::format("Let me see.\n\n<｜DSML｜ calls>\n{}{}", kAdd, kEnd)));
  EXPECT_FALSE(says(spec, "Then <｜DSML｜ calls>\n<｜DSML｜ invoke name=\"gone\">"));
  EXPECT_FALSE(says(spec, "Then <｜DSML｜invoke name=\"add\">"));
}

TEST_F(GrammarTest, ASchemaThatCantBeEnforcedMattersOnlyWhereStrict) {
  CallGrammar grammar = calls(CallGrammar::Where::kInsideBlock);
  grammar.tools = {{"f", *parse_json(R"({"type":"object","properties":{"a":{"not":{}}}})"), true,
                    "tools[0].function.parameters"}};
  const auto refused = prepare_calls(grammar);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(),
            "tools[0].function.parameters.properties.a: not: this keyword can't be enforced");
  grammar.tools[0].strict = false;
  EXPECT_TRUE(says(prepare_calls(grammar),
                   "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"any\" "
                   "string=\"false\">[1]</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"));
}

TEST_F(GrammarTest, ArgumentsOfAnyNameKeepToTheirSchema) {
  CallGrammar grammar = calls(CallGrammar::Where::kInsideBlock);
  grammar.tools = {{"f", *parse_json(R"({"type":"object","additionalProperties":{"type":"integer"}})"), true, "t"}};
  const auto said = [&](std::string_view parameter) {
    return says(prepare_calls(grammar), fmt::format("<｜DSML｜ invoke name=\"f\">\n{}</｜DSML｜ invoke>{}", parameter, kEnd));
  };
  EXPECT_TRUE(said("<｜DSML｜ parameter name=\"any\" string=\"false\">12</｜DSML｜ parameter>\n"));
  EXPECT_FALSE(said("<｜DSML｜ parameter name=\"any\" string=\"true\">12</｜DSML｜ parameter>\n"));
  EXPECT_FALSE(said("<｜DSML｜ parameter name=\"any\" string=\"false\">[1]</｜DSML｜ parameter>\n"));
}

TEST_F(GrammarTest, AnArgumentThatNoCallCanHoldIsRefusedByItsPlace) {
  CallGrammar grammar = calls(CallGrammar::Where::kInsideBlock);
  grammar.tools = {{"f", *parse_json(R"({"type":"object","properties":{"a":{"enum":["</｜DSML｜ parameter>"]}},"required":["a"]})"),
                    true, "tools[0].parameters"}};
  const auto refused = prepare_calls(grammar);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(),
            "tools[0].parameters.properties.a: no value of it can be written in a call, whose tags it would hold");
}

// Whatever a schema asks of a string, no tag can be in it, and its length counts.
TEST_F(GrammarTest, JsonInACallHoldsNoTagAndKeepsItsLengths) {
  for (const std::string_view item : {R"({"type":"string"})", R"({"type":"string","maxLength":40})", R"({"type":"string","maxLength":200})",
                                      R"({"type":"string","pattern":".*"})"}) {
    CallGrammar grammar = calls(CallGrammar::Where::kInsideBlock);
    grammar.tools = {{"f", *parse_json(fmt::format(R"({{"type":"object","properties":{{"a":{{"type":"array","items":{}}}}},"required":["a"]}})", item)),
                      true, "t"}};
    const auto spec = prepare_calls(grammar);
    const auto said = [&](const std::string& text) {
      return says(spec, fmt::format("<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"false\">[\"{}\"]</｜DSML｜ "
                                    "parameter>\n</｜DSML｜ invoke>{}", text, kEnd));
    };
    EXPECT_TRUE(said("a < b")) << item;
    EXPECT_FALSE(said("</｜DSML｜ parameter>")) << item;
    EXPECT_FALSE(item.find("maxLength") != std::string_view::npos && said(std::string(201, 'a'))) << item;
  }
}

TEST_F(GrammarTest, TheInputOfACustomToolKeepsToItsGrammar) {
  CallGrammar grammar = calls(CallGrammar::Where::kInsideBlock);
  const auto said = [&](std::string_view syntax, std::string_view definition, std::string_view input) {
    grammar.tools = {{"f", {}, true, "t", std::string(syntax), std::string(definition)}};
    return says(prepare_calls(grammar), fmt::format("<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"input\" string=\"true\">{}</｜DSML｜ "
                                                    "parameter>\n</｜DSML｜ invoke>{}", input, kEnd));
  };
  EXPECT_TRUE(said("regex", "^[a-z]+ \\d$", "abc 1"));
  EXPECT_FALSE(said("regex", "^[a-z]+ \\d$", "abc"));
  constexpr std::string_view kPatch =
      "start: begin hunk+ end\nbegin: \"*** Begin Patch\" LF\nend: \"*** End Patch\" LF?\n"
      "hunk: \"*** Add File: \" filename LF add_line+\nfilename: /(.+)/\nadd_line: \"+\" /(.*)/ LF -> line\n%import common.LF\n";
  EXPECT_TRUE(said("lark", kPatch, "*** Begin Patch\n*** Add File: a.txt\n+one\n+\n*** End Patch"));
  EXPECT_FALSE(said("lark", kPatch, "*** Begin Patch\n*** End Patch"));
  EXPECT_FALSE(said("lark", kPatch, "*** Begin Patch\n*** Add File: a\n+one</｜DSML｜ parameter>\n*** End Patch"));
  grammar.tools = {{"f", {}, true, "t", "lark", "start: nobody"}};
  const auto broken = compile(prepare_calls(grammar));
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(broken.error().message().find("heck failed"), std::string::npos) << broken.error().message();
}

TEST_F(GrammarTest, RollbackUndoesWhatWasAccepted) {
  const auto compiled = compile(prepare_regex("a*b", "r"));
  ASSERT_TRUE(compiled.ok());
  const TokenId open = tokenizer_->id_of_added("<think>").value(),
                close = tokenizer_->id_of_added("</think>").value();
  const TokenId a = tokenizer_->encode("a")[0], b = tokenizer_->encode("b")[0];
  const auto state = make_constraint({.grammar = *compiled, .trigger_ids = {close}, .forbidden_ids = {end_}},
                                     tokenizer_->vocab_size())
                         ->start();
  EXPECT_FALSE(state->accept(end_).ok());
  EXPECT_TRUE(state->accept(open).ok());
  for (const TokenId id : {close, a, a, b}) EXPECT_TRUE(state->accept(id).ok());
  EXPECT_FALSE(is_allowed(*state, a));
  EXPECT_TRUE(state->accept(end_).ok());
  EXPECT_TRUE(is_allowed(*state, a));  // behind the end: a row that runs for nothing
  EXPECT_TRUE(state->accept(a).ok());
  state->rollback(3);
  EXPECT_TRUE(is_allowed(*state, a));
  EXPECT_FALSE(is_allowed(*state, end_));
  state->rollback(3);
  EXPECT_TRUE(is_allowed(*state, open));
  EXPECT_FALSE(is_allowed(*state, end_));
}

TEST_F(GrammarTest, TheBudgetForcesTheTriggerAndTheBoundDoesToo) {
  const TokenId a = tokenizer_->encode("a")[0], b = tokenizer_->encode("b")[0],
                c = tokenizer_->encode("c")[0];
  const int64_t vocab = tokenizer_->vocab_size();
  const auto budget =
      make_constraint({.grammar = nullptr, .trigger_ids = {a, a, b}, .free_tokens = 3}, vocab)->start();
  for (const TokenId id : {c, a, a}) EXPECT_TRUE(budget->accept(id).ok());
  EXPECT_FALSE(is_allowed(*budget, a));  // two of the trigger are there already
  EXPECT_TRUE(budget->accept(b).ok());
  EXPECT_TRUE(is_allowed(*budget, c));
  budget->rollback(1);
  EXPECT_FALSE(is_allowed(*budget, c));

  const auto bound =
      make_constraint({.grammar = nullptr, .trigger_ids = {a, b}, .bound_id = c}, vocab)->start();
  for (const TokenId id : {a, c}) EXPECT_TRUE(bound->accept(id).ok());
  EXPECT_FALSE(is_allowed(*bound, b));
  EXPECT_TRUE(bound->accept(a).ok());
  EXPECT_FALSE(is_allowed(*bound, a));

  // An overlapping start of the trigger is not lost.
  const auto compiled = compile(prepare_regex("c", "r"));
  ASSERT_TRUE(compiled.ok());
  const auto overlap = make_constraint({.grammar = *compiled, .trigger_ids = {a, a, b}}, vocab)->start();
  for (const TokenId id : {a, a, a, b}) EXPECT_TRUE(overlap->accept(id).ok());
  EXPECT_FALSE(is_allowed(*overlap, a));
  EXPECT_TRUE(is_allowed(*overlap, c));
}

TEST_F(GrammarTest, AnEmptyLanguageAndABrokenGrammarAreErrors) {
  EXPECT_FALSE(compile(prepare_ebnf("root ::= other", "g")).ok());
  EXPECT_FALSE(compile(prepare_ebnf("root ::= [", "g")).ok());
  EXPECT_FALSE(compile(prepare_ebnf("root ::= root \"a\"", "g")).ok());
  const auto state = compile(
      prepare_structural_tag(*parse_json(R"({"type":"structural_tag","format":{"type":"nothing"}})"), "t"));
  EXPECT_FALSE(state.ok());
  EXPECT_FALSE(prepare_ebnf("root ::= \"a\"{1,100000}", "g").ok());
  EXPECT_FALSE(prepare_choice({}, "c").ok());
  EXPECT_FALSE(prepare_choice({""}, "c").ok());
}

TEST_F(GrammarTest, EqualGrammarsAreCompiledOnceAndTheCacheIsBoundedByBytes) {
  const auto first = compile(schema(R"({"type":"string","maxLength":7})"));
  ASSERT_TRUE(first.ok());
  const GrammarStats before = compiler_->stats();
  const auto again = compile(schema(R"({"maxLength":7, "type":"string", "title":"other words"})"));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *first);
  EXPECT_EQ(compiler_->stats().hits, before.hits + 1);
  EXPECT_EQ(compiler_->stats().compiled, before.compiled);

  const auto compiler = make_compiler({.cache_bytes = 200'000});
  GrammarCompiler& small = *compiler;
  for (int i = 1; i <= 12; ++i)
    ASSERT_TRUE(compile(schema(fmt::format(R"({{"type":"string","maxLength":{}}})", i)), small).ok());
  EXPECT_LE(small.stats().cached_bytes, 200'000);
  EXPECT_EQ(small.stats().compiled, 12);
}

TEST_F(GrammarTest, ALateCompilationEndsItsRequestAlone) {
  const auto compiler = make_compiler({.time_limit = std::chrono::milliseconds(0)});
  GrammarCompiler& hasty = *compiler;
  const auto late = compile(schema(R"({"type":"object","properties":{"a":{"type":"string"}}})"), hasty);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(hasty.stats().timeouts, 1);
}

// The worker of the tests (grammar_test_worker.cc) does with these as they say.
GrammarSpec held(int i = 0) { return *prepare_ebnf(fmt::format("# hold {}\nroot ::= \"a\"", i), "g"); }
GrammarSpec simple(int i = 0) { return *prepare_ebnf(fmt::format("root ::= \"a{}\"", i), "g"); }
constexpr std::chrono::minutes kForEver(60);

// The answers to several grammars.
struct Answers {
  std::vector<std::future<GrammarCompiler::Compiled>> futures;
  std::vector<uint64_t> ids;
  void ask(GrammarCompiler& compiler, const GrammarSpec& spec, std::string_view client = {}) {
    auto promise = std::make_shared<std::promise<GrammarCompiler::Compiled>>();
    futures.push_back(promise->get_future());
    ids.push_back(compiler.compile(
        spec, [promise](GrammarCompiler::Compiled result) { promise->set_value(std::move(result)); }, client));
  }
  bool has(size_t i) const { return futures[i].wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
};

void wait_for_stats(const GrammarCompiler& compiler, const std::function<bool(const GrammarStats&)>& hold) {
  while (!hold(compiler.stats())) std::this_thread::yield();
}

TEST_F(GrammarTest, ALateCompilationIsKilledAndItsWorkerReplaced) {
  const auto compiler = make_compiler({.time_limit = std::chrono::milliseconds(300)});
  for (int i = 0; i < 5; ++i) {  // more than there are workers
    const auto late = compile(held(i), *compiler);
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code(), Code::kDeadlineExceeded);
    EXPECT_EQ(late.error().message(), "grammar: not compiled after 300 ms");
  }
  EXPECT_EQ(compiler->stats().timeouts, 5);
  EXPECT_EQ(compiler->stats().workers_killed, 5);
  const auto patient = make_compiler({});
  EXPECT_TRUE(compile(simple(), *patient).ok());
}

TEST_F(GrammarTest, WhatIsQuickPassesWhatNeverEndsAndStoppingWaitsForNothing) {
  const auto compiler = make_compiler({.time_limit = kForEver, .quick_limit = std::chrono::milliseconds(20)});
  Answers answers;
  for (int i = 0; i < 6; ++i) answers.ask(*compiler, held(i), i % 2 == 0 ? "one" : "two");
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(compile(simple(i), *compiler).ok());
  for (size_t i = 0; i < 6; ++i) EXPECT_FALSE(answers.has(i));
  EXPECT_LE(compiler->stats().workers, 3);
  compiler->stop();
  for (auto& future : answers.futures) {
    const auto result = future.get();
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code(), Code::kUnavailable);
  }
  EXPECT_FALSE(compile(simple(99), *compiler).ok());
}

TEST_F(GrammarTest, OneClientsLongGrammarsLeaveAWorkerToAnothersLongOne) {
  const auto compiler = make_compiler({.time_limit = kForEver, .quick_limit = std::chrono::milliseconds(20)});
  Answers answers;
  for (int i = 0; i < 4; ++i) answers.ask(*compiler, held(i), "one");
  EXPECT_TRUE(compile(simple(), *compiler).ok());  // behind them, so all have been tried
  answers.ask(*compiler, held(9), "two");
  EXPECT_TRUE(compile(simple(1), *compiler).ok());
  compiler->cancel(answers.ids[4]);
  wait_for_stats(*compiler, [](const GrammarStats& stats) { return stats.abandoned == 1; });
  EXPECT_EQ(compiler->stats().waiting, 4);
}

TEST_F(GrammarTest, WhatNobodyWaitsForAnyMoreIsKilled) {
  const auto compiler = make_compiler({.time_limit = kForEver});
  Answers answers;
  for (int i = 0; i < 8; ++i) answers.ask(*compiler, held(i % 4));
  for (size_t i = 0; i < 4; ++i) compiler->cancel(answers.ids[i]);
  EXPECT_TRUE(compile(simple(), *compiler).ok());
  EXPECT_EQ(compiler->stats().waiting, 4);  // of each, one still waits
  for (size_t i = 4; i < 8; ++i) compiler->cancel(answers.ids[i]);
  wait_for_stats(*compiler, [](const GrammarStats& stats) { return stats.waiting == 0; });
  EXPECT_EQ(compiler->stats().abandoned, 4);
  EXPECT_LE(compiler->stats().workers, 1);
}

TEST_F(GrammarTest, AWorkerThatDiesIsTheFaultOfItsGrammarAlone) {
  const auto compiler = make_compiler({.worker_bytes = int64_t{256} << 20});
  for (int i = 0; i < 3; ++i) {
    const auto crash = compile(*prepare_ebnf(fmt::format("# crash {}\nroot ::= \"a\"", i), "g"), *compiler);
    ASSERT_FALSE(crash.ok());
    EXPECT_EQ(crash.error().code(), Code::kInvalidArgument);
    EXPECT_EQ(crash.error().message(),
              "grammar: it is too deep or too large to compile (its process ended by signal 11)");
    EXPECT_TRUE(compile(simple(i), *compiler).ok());
  }
  EXPECT_EQ(compiler->stats().workers_died, 3);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const auto eats = compile(*prepare_ebnf("# eat\nroot ::= \"a\"", "g"), *compiler);
  ASSERT_FALSE(eats.ok());
  EXPECT_EQ(eats.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(eats.error().message(), "grammar: compiling it takes more than 256 MiB of memory");
  EXPECT_TRUE(compile(simple(9), *compiler).ok());
#endif
}

TEST_F(GrammarTest, AClientMayNotFillTheQueue) {
  const auto compiler = make_compiler({.time_limit = kForEver, .max_waiting = 12, .max_waiting_of_client = 5});
  Answers answers;
  for (int i = 0; i < 7; ++i) answers.ask(*compiler, held(i), "one");
  for (size_t i = 5; i < 7; ++i) {
    const auto result = answers.futures[i].get();
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code(), Code::kResourceExhausted);
  }
  for (int i = 10; i < 20; ++i) answers.ask(*compiler, held(i), fmt::format("client {}", i));
  EXPECT_FALSE(answers.has(13));
  EXPECT_TRUE(answers.has(14));
}

TEST_F(GrammarTest, WithoutAProgramToStartTheRequestSaysSo) {
  const auto compiler = make_compiler({.worker = {"/nowhere/at-all"}});
  const auto refused = compile(simple(), *compiler);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
  EXPECT_EQ(refused.error().message(),
            "grammar: no process to compile it could be started: No such file or directory");
}

TEST_F(GrammarTest, WithoutAProgramOfItsOwnThreadsCompile) {
  GrammarCompiler compiler(*tokenizer_, tokenizer_->vocab_size(), {end_}, {mark_});
  EXPECT_TRUE(compile(simple(), compiler).ok());
}

}  // namespace
}  // namespace deepinfer
