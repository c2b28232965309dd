#include "planner/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "planner/planner.h"

namespace deepinfer::planner {
namespace {

TEST(Models, HaveSoundInputsAndFiniteFigures) {
  for (const Model* model : all_models()) {
    const Values values = model->compute(model->defaults());
    EXPECT_TRUE(model->check(model->defaults()).ok());
    for (const Input& input : model->inputs()) {
      EXPECT_LE(input.low, input.value) << model->name() << " " << input.id;
      EXPECT_GE(input.high, input.value) << model->name() << " " << input.id;
      EXPECT_FALSE(input.source.empty()) << input.id;
      const auto read = parse_value(write_value(input.value, input.unit, input.scale), input);
      ASSERT_TRUE(read.ok()) << input.id << ": " << read.error().message();
      EXPECT_NEAR(*read / input.value, 1, 6e-4) << input.id;
    }
    for (const Figure& figure : model->figures()) {
      EXPECT_TRUE(std::isfinite(model->value(values, figure.id))) << model->name() << " " << figure.id;
      const auto text = explain(*model, values, figure.id);
      ASSERT_TRUE(text.ok());
      EXPECT_NE(text->find(model->text(values, figure.id)), std::string::npos);
    }
  }
}

TEST(Models, ExplainShowsFormulaNumbersSourceAndFinding) {
  const Model& model = production_model();
  const auto text = explain(model, model.compute(model.defaults()), "mean_revenue");
  ASSERT_TRUE(text.ok());
  for (const char* part : {"prefill_share × prefill_revenue + (1 − prefill_share) × decode_revenue",
                           "50 % × $47.95 per card-hour + (1 − 50 %) × $30.24 per card-hour", "= $39.10 per card-hour",
                           "the source says $38 (and $39): does not agree",
                           "finding (a): $39.10 per card-hour is 2.884 % more", "told as an equal split"})
    EXPECT_NE(text->find(part), std::string::npos) << part << "\nin\n" << *text;
  const auto unknown = explain(model, model.compute(model.defaults()), "nothing");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code(), Code::kNotFound);
  EXPECT_EQ(unknown.error().message().rfind("no figure 'nothing'; expected one of hit_rate, ", 0), 0u);
}

TEST(Models, BadInputsAreRefusedByName) {
  const Model& model = deployment_model();
  const auto refused = [&](std::string_view id, double value) {
    Values inputs = model.defaults();
    inputs[*model.place(id)] = value;
    const Status status = model.check(inputs);
    EXPECT_FALSE(status.ok()) << id << " " << value;
    return status.ok() ? "" : status.error().message();
  };
  EXPECT_EQ(refused("requests", 0), "requests (Requests): found 0 requests/s, expected a number above 0");
  EXPECT_EQ(refused("requests", -1), "requests (Requests): found -1 requests/s, expected a number above 0");
  EXPECT_EQ(refused("hit", 1.2), "hit (Input found in the cache): found 120 %, expected 0 % to 100 %");
  EXPECT_EQ(refused("chat_days", -kDay), "chat_days (Retention, chat): found -1 d, expected a number from 0");
  refused("input", NAN);
  refused("input", INFINITY);
}

// The tornado of a sum of two: the larger part comes first, its ends are the figure's.
TEST(Models, SensitivityOrdersByEffect) {
  Model model("small", "");
  const auto a = model.input("a", "", 10, kNumber, {5, 20, "x"});
  const auto b = model.input("b", "", 2, kNumber, {1, 100, "x"});
  model.input("c", "", 1, kNumber, {0, 2, "x"});
  model.figure("sum", "", kNumber, a + b);
  const auto effects = sensitivity(model, model.compute(model.defaults()), *model.place("sum"));
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_EQ(effects[0].input, 0u);
  EXPECT_EQ(effects[0].down, 11);
  EXPECT_EQ(effects[0].up, 13);
  EXPECT_EQ(effects[0].at_low, 7);
  EXPECT_EQ(effects[0].at_high, 22);
  EXPECT_EQ(effects[1].at_high, 110);
}

TEST(Models, JsonAndCsvComeBack) {
  const Model& model = deployment_model();
  Values inputs = model.defaults();
  inputs[*model.place("requests")] = 12.5;
  inputs[*model.place("price_hit")] = 0.0123e-6;
  const Values values = model.compute(inputs);
  const auto json = read_inputs_json(write_json(model, values), model);
  ASSERT_TRUE(json.ok()) << json.error().message();
  const auto csv = read_inputs_csv(write_csv(model, values), model);
  ASSERT_TRUE(csv.ok()) << csv.error().message();
  for (const Input& input : model.inputs()) {
    EXPECT_NEAR(json->at(input.id) / model.value(values, input.id), 1, 1e-12) << input.id;
    EXPECT_NEAR(csv->at(input.id) / model.value(values, input.id), 1, 1e-12) << input.id;
  }
}

TEST(Models, BadFilesNameTheLine) {
  const Model& model = deployment_model();
  const auto csv = [&](std::string_view text) {
    const auto read = read_inputs_csv(text, model);
    EXPECT_FALSE(read.ok()) << text;
    return read.ok() ? "" : read.error().message();
  };
  EXPECT_EQ(csv("a,b\n"), "line 1: found 'a,b', expected the header name,value,unit");
  EXPECT_EQ(csv("name,value,unit\nrequests,50\n"), "line 2: found 2 cells, expected name,value,unit");
  EXPECT_EQ(csv("name,value,unit\r\nrequests,50,\r\n"),
            "line 2: requests (Requests): found '50', which has no unit, expected a number with a unit of: requests/s, "
            "requests/min, requests/h; as in '50 requests/s'");
  EXPECT_EQ(csv("name,value,unit\nrequests,5,requests/s\nrequests,6,requests/s\n"),
            "line 3: requests: found a second value, expected one");
  EXPECT_EQ(
      csv("name,value,unit\nnothing,5,\n").rfind("line 2: found the name 'nothing', expected an input: requests, ", 0),
      0u);
  const auto json = [&](std::string_view text) {
    const auto read = read_inputs_json(text, model);
    EXPECT_FALSE(read.ok()) << text;
    return read.ok() ? "" : read.error().message();
  };
  EXPECT_EQ(json(R"({"requests": true})"), "requests: found boolean, expected a string such as \"50 requests/s\"");
  EXPECT_EQ(json(R"({"requests": 50})").rfind("requests (Requests): found '50', which has no unit", 0), 0u);
  json("[]");
  json("{");
  json(R"({"inputs": [{"name": "requests", "value": "x", "unit": ""}]})");
}

}  // namespace
}  // namespace deepinfer::planner
