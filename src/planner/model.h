// A model: named inputs, and figures computed from them by formulas. The same object computes, explains, tells which
// input matters, and writes itself as JavaScript.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "planner/formula.h"

namespace deepinfer::planner {

// How sure a number is: published or measured and read at its source; told by somebody else; derived or guessed here.
enum class Confidence { kHigh, kMedium, kLow };
inline constexpr auto kLowConfidence = Confidence::kLow;
inline constexpr auto kMediumConfidence = Confidence::kMedium;
std::string_view confidence_name(Confidence confidence);

enum class Bound { kPositive, kNotNegative, kFraction };  // kFraction: 0 to 1

struct Input {
  std::string id, label, group;
  double value = 0;          // base units, as `low` and `high`
  double low = 0, high = 0;  // the plausible range: sliders and sensitivities
  std::string_view unit;
  double scale = 1;
  Bound bound = Bound::kPositive;
  std::string source;
  Confidence confidence = Confidence::kHigh;
};

// What a source says of a figure, in the figure's unit. It agrees when the figure rounds or is cut to it.
struct Claim {
  double value = 0, step = 0;  // step: what the source rounds to
  std::string text;
};

struct Figure {
  std::string id, label, group;
  NodePtr formula;
  std::string_view unit;
  double scale = 1;
  int number = 0;        // of the table of published figures; 0 for others
  std::string findings;  // letters of the findings that concern it
  std::optional<Claim> claim;
  std::string source;  // where the formula comes from or what is unsure
  Confidence confidence = Confidence::kMedium;
};

struct Finding {
  char letter = 0;
  std::string text;  // {id} stands for the value of a figure or input
};

// Something that a reader has to know, shown while `condition` is above 0.
struct Note {
  NodePtr condition;
  std::string text;  // as that of a finding
};

// Of one model: inputs first, then figures, all in base units.
using Values = std::vector<double>;

// What is said of an input and of a figure beside its name and formula.
struct InputNotes {
  double low, high;  // in the unit of the measure
  std::string source;
  Confidence confidence = Confidence::kHigh;
  Bound bound = Bound::kPositive;
};
struct FigureNotes {
  int number = 0;
  std::string findings = {};
  std::optional<Claim> claim = {};
  std::string source = {};
  Confidence confidence = Confidence::kMedium;
};

class Model {
 public:
  Model(std::string name, std::string title) : name_(std::move(name)), title_(std::move(title)) {}

  // ---- Making one; inputs before figures ----
  void group(std::string text) { group_ = std::move(text); }
  template <typename U>
  Term<U> input(std::string id, std::string label, double value, const Measure<U>& measure, InputNotes notes) {
    return {add({std::move(id), std::move(label), group_, value * measure.scale, notes.low * measure.scale,
                 notes.high * measure.scale, measure.text, measure.scale, notes.bound, std::move(notes.source),
                 notes.confidence})};
  }
  template <typename U>
  Term<U> figure(std::string id, std::string label, const Measure<U>& measure, const Term<U>& formula,
                 FigureNotes notes = {}) {
    return {add({std::move(id), std::move(label), group_, formula.node, measure.text, measure.scale, notes.number,
                 std::move(notes.findings), std::move(notes.claim), std::move(notes.source), notes.confidence})};
  }
  void finding(char letter, std::string text) { findings_.push_back({letter, std::move(text)}); }
  void note(const Term<Pure>& condition, std::string text) { notes_.push_back({condition.node, std::move(text)}); }

  // ---- Looking at it ----
  const std::string& name() const { return name_; }
  const std::string& title() const { return title_; }
  const std::vector<Input>& inputs() const { return inputs_; }
  const std::vector<Figure>& figures() const { return figures_; }
  const std::vector<Finding>& findings() const { return findings_; }
  const std::vector<Note>& notes() const { return notes_; }
  const Input* find_input(std::string_view id) const;
  const Figure* find_figure(std::string_view id) const;
  std::optional<size_t> place(std::string_view id) const;  // in Values, of an input or a figure

  // ---- Computing ----
  Values defaults() const;              // of the inputs
  Values compute(Values inputs) const;  // requires one value an input; appends the figures
  // kInvalidArgument names the input, what was found and what was expected.
  Status check(std::span<const double> inputs) const;
  double value(const Values& values, std::string_view id) const;      // base units; requires that `id` exists
  std::string text(const Values& values, std::string_view id) const;  // as people write it

 private:
  NodePtr add(Input input);
  NodePtr add(Figure figure);
  NodePtr variable(size_t place) const;

  std::string name_, title_, group_;
  std::vector<Input> inputs_;
  std::vector<Figure> figures_;
  std::vector<Finding> findings_;
  std::vector<Note> notes_;
};

// Whether the figure rounds or is cut to what the source says.
bool agrees(const Figure& figure, double value);
// The text of a finding with its numbers.
std::string fill(const Model& model, const Values& values, std::string_view text);

// The notes that hold for these values.
std::vector<std::string> notes_of(const Model& model, const Values& values);

// Formula, formula with numbers, result, where each number comes from. kNotFound when there is no such figure or input.
Result<std::string> explain(const Model& model, const Values& values, std::string_view id);

struct Effect {
  size_t input;            // place
  double down, up;         // the figure with this input 10 % lower and higher
  double at_low, at_high;  // and at the ends of its range
};
// What each input does to a figure, the strongest first; inputs without effect are left out.
std::vector<Effect> sensitivity(const Model& model, const Values& values, size_t figure);

// ---- Numbers as text ----
// "1,500,000 tokens/s per card", "$47.95 per card-hour": four digits, all digits of larger whole numbers up to six.
std::string write_value(double base_value, std::string_view unit, double scale);
// "3 d", "96 %", "$0.15 per 1M tokens" in any unit of the same kind; the error names what was found and expected.
Result<double> parse_value(std::string_view text, const Input& input);

}  // namespace deepinfer::planner
