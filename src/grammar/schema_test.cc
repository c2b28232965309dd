#include "grammar/schema.h"

#include <gtest/gtest.h>

#include <regex>

namespace deepinfer {
namespace {

JsonValue parsed(std::string_view text) {
  Result<JsonValue> value = parse_json(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? std::move(*value) : JsonValue();
}
std::string prepared(std::string_view text) {
  const Result<JsonValue> out = prepare_schema(parsed(text), "s");
  return out.ok() ? to_json(*out) : out.error().message();
}
std::string pattern(std::string_view text) {
  const Result<std::string> out = prepare_pattern(text);
  return out.ok() ? *out : out.error().message();
}

TEST(PrepareSchema, NamesThePathAndTheKeywordOfWhatItRefuses) {
  EXPECT_EQ(prepared(R"({"type":"object","properties":{"a":{"not":{}}}})"),
            "s.properties.a: not: this keyword can't be enforced");
  EXPECT_EQ(prepared(R"({"type":"array","items":{"type":"strng"}})"),
            "s.items: type: found \"strng\", expected one of null, boolean, integer, number, string, array, "
            "object or a list of them");
  EXPECT_EQ(prepared(R"({"type":"string","minLength":3,"maxLength":2})"),
            "s: minLength: it is greater than maxLength");
  EXPECT_EQ(prepared(R"({"type":"integer","minimum":3,"exclusiveMaximum":3})"),
            "s: minimum: no integer lies between the bounds");
  EXPECT_EQ(prepared(R"({"type":"number","minimum":3,"maximum":2})"),
            "s: minimum: no number lies between the bounds");
  EXPECT_EQ(prepared(R"({"type":"array","minItems":3,"maxItems":2})"), "s: minItems: it is greater than maxItems");
  EXPECT_EQ(prepared(R"({"type":"array","uniqueItems":true})"), "s: uniqueItems: this can't be enforced");
  EXPECT_EQ(prepared(R"({"$ref":"#/$defs/x"})"), "s: $ref: '#/$defs/x' does not exist");
  EXPECT_EQ(prepared(R"({"$ref":"http://else.where/"})"),
            "s: $ref: 'http://else.where/' is outside this schema");
  EXPECT_EQ(prepared(R"({"type":"string","format":"color"})").substr(0, 40),
            "s: format: 'color' can't be enforced; ex");
  EXPECT_EQ(prepared(R"j({"type":"string","pattern":"a(?=b)"})j"),
            "s: pattern: a look-around, a named group or a flag at byte 1 can't be enforced");
  EXPECT_EQ(prepared(R"({"enum":["a",1],"type":"boolean"})"), "s: enum: no value satisfies the other keywords");
  EXPECT_EQ(prepared("[1]"), "s: schema: found array, expected an object or a boolean");
  EXPECT_EQ(prepared("false"), "s: no finite value satisfies this schema");
  EXPECT_EQ(prepared(R"({"type":"object","required":["a"],"additionalProperties":false})"),
            "s: required: 'a' is not a declared property, and no others are allowed");
  EXPECT_EQ(prepared(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})"),
            "s: oneOf: branches 0 and 1 do not differ by a type or a constant; use anyOf");
  EXPECT_EQ(prepared(R"({"type":"integer","multipleOf":7,"minimum":1,"maximum":5})"),
            "s: multipleOf: no multiple lies between the bounds");
}

TEST(PrepareSchema, RecursionThatNeverEndsIsAnEmptyLanguage) {
  EXPECT_EQ(prepared(R"({"$ref":"#"})"), "s: no finite value satisfies this schema");
  EXPECT_EQ(prepared(R"({"type":"object","properties":{"next":{"$ref":"#"}},"required":["next"]})"),
            "s: no finite value satisfies this schema");
  EXPECT_EQ(prepared(R"({"type":"array","items":{"$ref":"#"},"minItems":1})"),
            "s: no finite value satisfies this schema");
  // Ways that end are kept, others go.
  EXPECT_EQ(
      prepared(R"({"type":"array","items":{"$ref":"#"}})"),
      R"({"type":"array","items":{"$ref":"#/$defs/0"},"$defs":{"0":{"type":"array","items":{"$ref":"#/$defs/0"}}}})");
  EXPECT_EQ(prepared(R"({"type":"object","properties":{"a":{"type":"null"},"b":false}})"),
            R"({"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":false})");
  EXPECT_EQ(
      prepared(
          R"({"anyOf":[{"type":"null"},{"$ref":"#/$defs/loop"}],"$defs":{"loop":{"$ref":"#/$defs/loop"}}})"),
      R"({"anyOf":[{"type":"null"}]})");
}

TEST(PrepareSchema, RewritesIntoWhatTheCompilerEnforces) {
  EXPECT_EQ(prepared("true"), "{}");
  EXPECT_EQ(prepared(R"({"title":"t","default":1,"x-mine":{}})"), "{}");
  EXPECT_EQ(prepared(R"({"type":"object"})"), R"({"type":"object","additionalProperties":{}})");
  EXPECT_EQ(prepared(R"({"type":["string","null"],"maxLength":3})"),
            R"({"anyOf":[{"type":"string","maxLength":3},{"type":"null"}]})");
  EXPECT_EQ(prepared(R"({"type":"integer","exclusiveMinimum":0.5,"maximum":9.7})"),
            R"({"type":"integer","minimum":1,"maximum":9})");
  EXPECT_EQ(prepared(R"({"enum":["a","bb",1],"type":"string","minLength":2})"), R"({"enum":["bb"]})");
  EXPECT_EQ(prepared(R"({"const":4})"), R"({"enum":[4]})");
  EXPECT_EQ(prepared(R"({"allOf":[{"type":"null"}]})"), R"({"type":"null"})");
  EXPECT_EQ(prepared(R"({"type":"string","pattern":"^a|b$"})"), R"({"type":"string","pattern":"^a|b$"})");
  EXPECT_EQ(prepared(R"({"type":"object","required":["a"]})"),
            R"({"type":"object","properties":{"a":{}},"required":["a"],"additionalProperties":false})");
  EXPECT_EQ(prepared(R"({"type":"array","items":false})"), R"({"type":"array","items":{},"maxItems":0})");
  EXPECT_EQ(prepared(R"({"$ref":"#/definitions/a~1b","definitions":{"a/b":{"type":"null"}}})"),
            R"({"$ref":"#/$defs/0","$defs":{"0":{"type":"null"}}})");
}

TEST(PrepareSchema, BranchesOfOneOfMustBeToldApart) {
  EXPECT_EQ(prepared(R"({"oneOf":[{"type":"string"},{"type":"null"}]})"),
            R"({"anyOf":[{"type":"string"},{"type":"null"}]})");
  EXPECT_EQ(prepared(R"({"oneOf":[{"const":"a"},{"enum":["b","c"]}]})"),
            R"({"anyOf":[{"enum":["a"]},{"enum":["b","c"]}]})");
  EXPECT_NE(prepared(R"({"oneOf":[{"const":1},{"enum":[1.0,2]}]})").find("do not differ"), std::string::npos);
  constexpr std::string_view kTagged =
      R"({"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"$defs":{
        "a":{"type":"object","properties":{"kind":{"const":"a"}},"required":["kind"]},
        "b":{"type":"object","properties":{"kind":{"const":"b"}},"required":["kind"]}}})";
  EXPECT_EQ(prepared(kTagged).substr(0, 10), R"({"anyOf":[)");
}

TEST(PrepareSchema, BombsAreRefusedByTheirSize) {
  std::string deep;
  for (int i = 0; i < 80; ++i) deep += R"({"type":"array","items":)";
  EXPECT_NE(prepared(deep + "{}" + std::string(80, '}')).find("nested deeper than 64 levels"),
            std::string::npos);
  std::string wide = R"({"type":"object","properties":{)";
  for (int i = 0; i < 600; ++i) wide += fmt::format("\"p{}\":{{}},", i);
  wide.back() = '}';
  EXPECT_NE(prepared(wide + "}").find("properties: found 600, expected at most 512"), std::string::npos);
  std::string values = R"({"enum":[0)";
  for (int i = 1; i < 3000; ++i) values += fmt::format(",{}", i);
  EXPECT_NE(prepared(values + "]}").find("enum: found 3000 values, expected at most 2000"),
            std::string::npos);
  EXPECT_NE(prepared(R"({"type":"array","minItems":1000000000})")
                .find("minItems: found 1000000000, expected at most 10000"),
            std::string::npos);
  EXPECT_NE(prepared(R"({"type":"string","maxLength":1e300})").find("maxLength"), std::string::npos);
  EXPECT_NE(prepared(R"({"type":"string","pattern":"((a{100}){100}){100}"})")
                .find("with its repetitions expanded"),
            std::string::npos);
}

TEST(PreparePattern, TakesAnchorsOffAndRefusesWhatIsNoRegularLanguage) {
  EXPECT_EQ(pattern("^[a-z]+?$"), "[a-z]+");
  EXPECT_EQ(pattern("(?:^a|b{2})"), "(?:a|b{2,2})");
  EXPECT_EQ(pattern("a{2,}"), "a{2,2}a*");
  EXPECT_EQ(pattern("[ab]{300}"), "[a-b]{128,128}[a-b]{128,128}[a-b]{44,44}");
  EXPECT_EQ(pattern("(?:ab){130,400}"),
            "(?:ab){128,128}(?:(?:ab){2,127}|(?:ab){128,128}(?:(?:ab){0,127}|(?:ab){128,128}(?:ab){0,16}))");
  EXPECT_EQ(pattern("a{130,}"), "a{128,128}a{2,2}a*");
  EXPECT_EQ(pattern("a{128}"), "a{128,128}");
  EXPECT_EQ(pattern("a{128,129}"), "a{128,128}a{0,1}");
  EXPECT_NE(pattern("a{5000}").find("with its repetitions expanded"), std::string::npos);
  EXPECT_EQ(pattern("a(bc+)?"), "a(?:(?:bc+)|)");
  EXPECT_NE(pattern("a$b").find("'$' before the end at byte 1"), std::string::npos);
  EXPECT_NE(pattern("a^b").find("'^' after the start"), std::string::npos);
  EXPECT_NE(pattern("\\bword").find("an assertion"), std::string::npos);
  EXPECT_NE(pattern("(a)\\1").find("a back-reference"), std::string::npos);
  EXPECT_NE(pattern("(a").find("without ')'"), std::string::npos);
  EXPECT_NE(pattern("a)").find("without '('"), std::string::npos);
  EXPECT_NE(pattern("[a").find("without ']'"), std::string::npos);
  EXPECT_NE(pattern("*a").find("a repetition without an operand"), std::string::npos);
  EXPECT_NE(pattern("a{3,2}").find("a repetition from 3 to 2"), std::string::npos);
  EXPECT_NE(pattern("a**").find("a repetition of a repetition"), std::string::npos);
  EXPECT_NE(pattern("\\").find("a trailing '\\'"), std::string::npos);
  EXPECT_NE(pattern("[^\\s\\S]").find("a class without a character at byte 0"), std::string::npos);
  EXPECT_NE(pattern("[z-a]").find("a range that goes backwards"), std::string::npos);
  EXPECT_NE(pattern("\\ud800").find("half of a surrogate pair"), std::string::npos);
  EXPECT_NE(pattern("\\xg1").find("without two hexadecimal digits"), std::string::npos);
  EXPECT_NE(pattern("\xff").find("invalid UTF-8"), std::string::npos);
}

TEST(PreparePattern, WritesEachCharacterAsItsPlaceWants) {
  EXPECT_EQ(pattern("\\x41b"), "Ab");  // two digits, never more
  EXPECT_EQ(pattern("\\u0041\\u{1F600}\\ud83d\\ude00"), "A\\u{1f600}\\u{1f600}");
  EXPECT_EQ(pattern("a\"\\\\"), "a\\u{22}\\u{5c}");
  const auto in_json = [](std::string_view text) { return *prepare_pattern(text, {.in_json = true}); };
  EXPECT_EQ(in_json("a\"\\\\\\n"), "a(?:\\u{5c}\\u{22})(?:\\u{5c}\\u{5c})(?:\\u{5c}n)");
  EXPECT_EQ(in_json("\\x01"), "(?:\\u{5c}u0001)");
  EXPECT_EQ(in_json("[a\"]"), "(?:a|\\u{5c}\\u{22})");
  EXPECT_EQ(*prepare_pattern("[^a]", {.in_call = true}), "[\\u{0}-\\u{60}b-\\u{d7ff}\\u{e000}-\\u{ff5b}\\u{ff5d}-\\u{10ffff}]");
  EXPECT_NE(prepare_pattern("｜", {.in_call = true}).error().message().find("in an argument of a call"), std::string::npos);
}

// Each number between two bounds, and no other: all texts of some digits are tried against the bounds themselves.
TEST(Expressions, NumbersInAreThoseBetweenTheBounds) {
  std::vector<NumberRange> ranges;
  const std::optional<double> edges[] = {std::nullopt, -120.0, -12.5, -1.0, -0.25, 0.0, 0.07, 1.0, 9.99, 10.0, 99.0, 105.5};
  for (const auto low : edges) {
    for (const auto high : edges) {
      if (low && high && *low > *high) continue;
      for (int i = 0; i < 8; ++i) ranges.push_back({low, high, (i & 1) != 0, (i & 2) != 0, (i & 4) != 0});
    }
  }
  std::vector<std::string> texts;
  for (const std::string sign : {"", "-"}) {
    for (int whole = 0; whole < 130; ++whole) {
      texts.push_back(fmt::format("{}{}", sign, whole));
      for (const char* fraction : {"0", "5", "9", "00", "07", "25", "49", "50", "51", "98", "99", "070", "071"})
        texts.push_back(fmt::format("{}{}.{}", sign, whole, fraction));
    }
  }
  for (const NumberRange& range : ranges) {
    const std::string expression = numbers_in(range);
    std::string plain = expression;
    for (const auto& [from, to] : {std::pair("\\u{2e}", "\\."), std::pair("\\u{2d}", "-")}) {
      for (size_t at; (at = plain.find(from)) != std::string::npos;) plain.replace(at, 6, to);
    }
    const std::regex regex(plain, std::regex::ECMAScript | std::regex::optimize);
    for (const std::string& text : texts) {
      const double value = std::stod(text);
      const bool fits = (!range.low || (range.low_open ? value > *range.low : value >= *range.low)) &&
                        (!range.high || (range.high_open ? value < *range.high : value <= *range.high)) &&
                        (!range.whole || text.find('.') == std::string::npos);
      const bool may_be_left_out = text == "-0" || text.starts_with("-0.0");  // 0 in another spelling
      const bool said = !expression.empty() && std::regex_match(text, regex);
      if (said != fits && !(may_be_left_out && !said)) FAIL() << text << " " << plain << " expected " << fits;
    }
  }
}

}  // namespace
}  // namespace deepinfer
