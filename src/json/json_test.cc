#include "json/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace deepinfer {
namespace {

JsonValue parse(std::string_view text) {
  auto value = parse_json(text);
  EXPECT_TRUE(value.ok()) << text << ": " << value.error().message();
  return value.ok() ? *value : JsonValue();
}

std::string error_of(std::string_view text, const JsonParseOptions& options = {}) {
  const auto value = parse_json(text, options);
  EXPECT_FALSE(value.ok()) << text;
  if (value.ok()) return "";
  EXPECT_EQ(value.error().code(), Code::kInvalidArgument);
  return value.error().message();
}

std::string reprint(std::string_view text, JsonStyle style) {
  return to_json(parse(text), style);
}

TEST(JsonParse, ObjectsKeepTheOrderOfTheirKeys) {
  EXPECT_EQ(reprint(R"( {"z": 1, "a": [true, null, {}], "m": {"y": "", "b": []}} )", JsonStyle::kCompact),
            R"({"z":1,"a":[true,null,{}],"m":{"y":"","b":[]}})");
}

TEST(JsonParse, IntegersOf64BitsStayExact) {
  EXPECT_EQ(parse("9223372036854775807").int64(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(parse("-9223372036854775808").int64(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(parse("18446744073709551615").uint64(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(parse("9223372036854775808").int64(), std::nullopt);
  EXPECT_EQ(parse("7").uint64(), 7u);
  EXPECT_EQ(parse("-7").uint64(), std::nullopt);
}

TEST(JsonParse, ANumberWithFractionOrExponentIsNoInteger) {
  for (const char* text : {"1.0", "1e3", "1E+2", "18446744073709551616", "-9223372036854775809", "-0"}) {
    EXPECT_EQ(parse(text).kind(), JsonValue::Kind::kDouble) << text;
    EXPECT_EQ(parse(text).int64(), std::nullopt) << text;
  }
  EXPECT_EQ(parse("1e3").number(), 1000.0);
  EXPECT_EQ(parse("3").number(), 3.0);
  EXPECT_TRUE(std::signbit(*parse("-0").number()));
  EXPECT_EQ(parse("1e-400").number(), 0.0);
}

TEST(JsonParse, ScalarsAreDocumentsToo) {
  EXPECT_TRUE(parse(" null ").is_null());
  EXPECT_EQ(parse("true").boolean(), true);
  EXPECT_EQ(*parse(R"("a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00\u0000")").string(),
            std::string("a\"\\/\b\f\n\r\t\xc3\xa9\xf0\x9f\x98\x80\0", 16));
}

TEST(JsonParse, OfEqualKeysTheLastValueWinsAtThePlaceOfTheFirst) {
  EXPECT_EQ(reprint(R"({"a":1,"b":2,"a":3,"c":4,"a":5})", JsonStyle::kCompact), R"({"a":5,"b":2,"c":4})");
}

TEST(JsonParse, EqualKeysAreSettledAsAMapWould) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::pair<std::string, int>> expected;
    std::string text = "{";
    const int size = static_cast<int>(random() % 40);
    for (int i = 0; i < size; ++i) {
      const std::string key = fmt::format("{}", random() % (1 + random() % 50));
      text += fmt::format("{}\"{}\":{}", i == 0 ? "" : ",", key, i);
      const auto found =
          std::find_if(expected.begin(), expected.end(), [&](const auto& one) { return one.first == key; });
      found == expected.end() ? void(expected.push_back({key, i})) : void(found->second = i);
    }
    std::string wanted = "{";
    for (const auto& [key, value] : expected) {
      wanted += fmt::format("{}\"{}\":{}", wanted.size() == 1 ? "" : ",", key, value);
    }
    EXPECT_EQ(reprint(text + "}", JsonStyle::kCompact), wanted + "}") << text;
  }
}

TEST(JsonParse, EqualKeysAreAnErrorOnRequest) {
  JsonParseOptions strict;
  strict.duplicate_keys = DuplicateKeys::kError;
  EXPECT_NE(error_of(R"({"x":{"a":1,"\u0061":3}})", strict).find("key 'a' appears twice"), std::string::npos);
}

TEST(JsonParse, MalformedTextIsRefused) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "[",
                           "]",
                           "[1,]",
                           "[1 2]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{a:1}",
                           "'a'",
                           "nul",
                           "nulll",
                           "truee",
                           "[nulll]",
                           "{\"a\": null \"b\": 1}",
                           "[truex]",
                           "01",
                           "[01]",
                           "1.",
                           "[1.]",
                           ".5",
                           "+1",
                           "-",
                           "[-]",
                           "1e",
                           "[1e+]",
                           "NaN",
                           "[Infinity]",
                           "1e309",
                           "[-1e309]",
                           "\"",
                           "\"\\x\"",
                           "\"\\ud800\"",
                           "\"\\u12\"",
                           "\"\n\"",
                           "1 2",
                           "{} {}",
                           "[] 1",
                           "null null",
                           "[1]]",
                           "/**/1",
                           "[1}",
                           "{\"a\":1]",
                           "{1:2}",
                           "[,1]",
                           "\xef\xbb\xbf{}"}) {
    error_of(text);
  }
}

TEST(JsonParse, InvalidUtf8IsAnErrorWithItsLine) {
  EXPECT_EQ(error_of("{\n\"a\":\n\"\xc3\x28\"}"), "line 3: not valid UTF-8");
  for (const char* text :
       {"\"\xff\"", "\"\xed\xa0\x80\"", "\"\xc0\x80\"", "\"\xe2\x82\"", "\"\xf5\x80\x80\x80\""}) {
    error_of(text);
  }
}

TEST(JsonParse, ErrorsNameLineAndColumn) {
  EXPECT_EQ(error_of("{\n  \"a\": 12a\n}").rfind("line 2, column ", 0), 0u);
  EXPECT_EQ(error_of("[1]\n[2]").rfind("line 2, column 1: ", 0), 0u);
}

TEST(JsonParse, NestingIsLimited) {
  JsonParseOptions options;
  options.max_depth = 3;
  EXPECT_TRUE(parse_json("[[[1]]]", options).ok());
  EXPECT_NE(error_of("[[[[1]]]]", options).find("more than 3 nested"), std::string::npos);
  EXPECT_NE(error_of(std::string(100'000, '[')).find("nested"), std::string::npos);
  EXPECT_TRUE(parse_json(std::string(256, '[') + std::string(256, ']')).ok());
}

TEST(JsonParse, Utf8IsToldFromOtherBytes) {
  EXPECT_TRUE(is_utf8("a\u00e9\U0001f600"));
  EXPECT_TRUE(is_utf8(""));
  for (const char* wrong : {"\xff", "a\xe2\x82", "\xed\xa0\x80", "\xc0\x80"})
    EXPECT_FALSE(is_utf8(wrong)) << wrong;
}

TEST(JsonParse, TheNumberOfValuesIsLimited) {
  JsonParseOptions options;
  options.max_values = 4;
  EXPECT_TRUE(parse_json("[1,2,{}]", options).ok());
  EXPECT_NE(error_of("[1,2,{\"a\":3}]", options).find("more than 4 values"), std::string::npos);
}

TEST(JsonParse, EveryPrefixOfADocumentIsRefused) {
  const std::string text = R"({"a":[1,-2.5e3,true,false,null],"b":{"c":"d\u00e9\n"},"e":"f"})";
  ASSERT_TRUE(parse_json(text).ok());
  for (size_t length = 0; length < text.size(); ++length) error_of(text.substr(0, length));
}

TEST(JsonParse, AnObjectOfManyKeysIsReadInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("{}\"key{}\":{}", i == 0 ? "" : ",", i, i);
  const JsonValue value = parse(text + "}");
  ASSERT_EQ(value.object()->size(), 200'000u);
  EXPECT_EQ(value.object()->back().value.int64(), 199'999);
}

TEST(JsonRef, TypedAccessFailsWithThePath) {
  const JsonValue document =
      parse(R"({"text_config":{"hidden_size":"x","ids":[1,2.5],"big":18446744073709551615}})");
  const JsonRef text_config = JsonRef(document)["text_config"];
  EXPECT_EQ(text_config["hidden_size"].int64().error().message(),
            "text_config.hidden_size: found string, expected integer");
  EXPECT_EQ(text_config["vocab_size"].int64().error().message(),
            "text_config.vocab_size: found nothing, expected integer");
  EXPECT_EQ((*text_config["ids"].array())[1].int64().error().message(),
            "text_config.ids[1]: found number, expected integer");
  EXPECT_EQ(text_config["big"].int64().error().message(),
            "text_config.big: found integer, expected integer below 2^63");
  EXPECT_EQ(text_config.string().error().message(), "text_config: found object, expected string");
  EXPECT_EQ(*text_config["ids"][0].int64(), 1);
  EXPECT_FALSE(text_config["ids"][9]["deeper"].present());
  EXPECT_EQ(JsonRef(document).array().error().message(), "document: found object, expected array");
}

TEST(JsonWriter, StylesDifferInSeparators) {
  const char* text = R"({"a":[1,"ü"],"b":{}})";
  EXPECT_EQ(reprint(text, JsonStyle::kCompact), text);
  EXPECT_EQ(reprint(text, JsonStyle::kPython), R"({"a": [1, "ü"], "b": {}})");
  EXPECT_EQ(reprint("[1e-6,0.00002]", JsonStyle::kSpaced), "[1e-6, 0.00002]");
}

TEST(JsonWriter, AppendsMembersAndNestedValues) {
  std::string out = "data: ";
  JsonWriter writer(out);
  writer.begin_object().member("id", "x").member("n", 3).member("big", ~uint64_t{0}).member("ok", true);
  writer.key("choices")
      .begin_array()
      .begin_object()
      .member("t", 0.5)
      .end_object()
      .null()
      .raw("[1]")
      .end_array();
  writer.member("v", JsonValue(JsonValue::Array{1, "s"})).end_object();
  EXPECT_EQ(out, R"(data: {"id":"x","n":3,"big":18446744073709551615,"ok":true,)"
                 R"("choices":[{"t":0.5},null,[1]],"v":[1,"s"]})");
}

TEST(JsonWriter, OnlyQuotesBackslashesAndControlsAreEscaped) {
  std::string out;
  append_json_string(out, std::string_view("\"\\/\b\f\n\r\t\x01\x1f\x7f\0é<", 15));
  EXPECT_EQ(out, "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\\u0000é<\"");
}

TEST(JsonWriter, NumbersWithoutJsonFormBecomeNull) {
  std::string out;
  JsonWriter(out)
      .begin_array()
      .value(std::nan(""))
      .value(-std::numeric_limits<double>::infinity())
      .end_array();
  EXPECT_EQ(out, "[null,null]");
}

// JSON text, printed in Python style, printed compactly: the `number` records of the official prompt toolkit.
TEST(JsonWriter, NumbersPrintAsThePromptToolkitPrintsThem) {
  const struct {
    const char* text;
    const char* python;
    const char* compact;
  } kRecords[] = {
      {"0", "0", "0"},
      {"-0", "-0.0", "-0.0"},
      {"-0.0", "-0.0", "-0.0"},
      {"1", "1", "1"},
      {"1.0", "1.0", "1.0"},
      {"10.50", "10.5", "10.5"},
      {"1e2", "100.0", "100.0"},
      {"1E+2", "100.0", "100.0"},
      {"1e15", "1000000000000000.0", "1000000000000000.0"},
      {"1e16", "1e+16", "1e+16"},
      {"1e17", "1e+17", "1e+17"},
      {"123456789.123456789", "123456789.12345679", "123456789.12345679"},
      {"0.0001", "0.0001", "0.0001"},
      {"0.00001", "1e-05", "0.00001"},
      {"1e-7", "1e-07", "1e-7"},
      {"9223372036854775807", "9223372036854775807", "9223372036854775807"},
      {"9223372036854775808", "9223372036854775808", "9223372036854775808"},
      {"18446744073709551615", "18446744073709551615", "18446744073709551615"},
      {"18446744073709551616", "1.8446744073709552e+19", "1.8446744073709552e+19"},
      {"-9223372036854775808", "-9223372036854775808", "-9223372036854775808"},
      {"1e308", "1e+308", "1e+308"},
      {"2.2250738585072014e-308", "2.2250738585072014e-308", "2.2250738585072014e-308"},
      {"5e-324", "5e-324", "5e-324"},
      {"0.1", "0.1", "0.1"},
      {"0.30000000000000004", "0.30000000000000004", "0.30000000000000004"},
      {"1.7976931348623157e308", "1.7976931348623157e+308", "1.7976931348623157e+308"},
      {"100000000000000000000000", "1e+23", "1e+23"},
      {"1e-6", "1e-06", "1e-6"},
      {"1.5e-5", "1.5e-05", "0.000015"},
      {"1.5e-6", "1.5e-06", "1.5e-6"},
      {"1234567890123456.7", "1234567890123456.8", "1234567890123456.8"},
      {"12345678901234567.8", "1.2345678901234568e+16", "1.2345678901234568e+16"},
  };
  for (const auto& record : kRecords) {
    EXPECT_EQ(reprint(record.text, JsonStyle::kPython), record.python) << record.text;
    EXPECT_EQ(reprint(record.text, JsonStyle::kCompact), record.compact) << record.text;
  }
}

TEST(JsonWriter, EveryDoubleReadsBackAsItself) {
  uint64_t bits = 0x9E3779B97F4A7C15;
  for (int i = 0; i < 20'000; ++i) {
    bits = bits * 6364136223846793005u + 1442695040888963407u;
    const auto value = std::bit_cast<double>(bits);
    if (!std::isfinite(value)) continue;
    for (const JsonStyle style : {JsonStyle::kCompact, JsonStyle::kPython, JsonStyle::kSpaced}) {
      std::string text;
      append_json_number(text, value, style);
      ASSERT_EQ(parse(text).number(), value) << text;
    }
  }
}

}  // namespace
}  // namespace deepinfer
