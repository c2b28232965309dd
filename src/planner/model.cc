#include "planner/model.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace deepinfer::planner {

std::string_view confidence_name(Confidence confidence) {
  switch (confidence) {
    case Confidence::kHigh:
      return "high";
    case Confidence::kMedium:
      return "medium";
    case Confidence::kLow:
      return "low";
  }
  return "";
}

NodePtr Model::variable(size_t place) const {
  Node node{Operation::kVariable};
  node.variable = static_cast<int>(place);
  return std::make_shared<const Node>(std::move(node));
}

NodePtr Model::add(Input input) {
  CHECK(figures_.empty() && !place(input.id));
  inputs_.push_back(std::move(input));
  return variable(inputs_.size() - 1);
}

NodePtr Model::add(Figure figure) {
  CHECK(!place(figure.id));
  figures_.push_back(std::move(figure));
  return variable(inputs_.size() + figures_.size() - 1);
}

const Input* Model::find_input(std::string_view id) const {
  const auto found = std::find_if(inputs_.begin(), inputs_.end(), [&](const Input& one) { return one.id == id; });
  return found == inputs_.end() ? nullptr : &*found;
}

const Figure* Model::find_figure(std::string_view id) const {
  const auto found = std::find_if(figures_.begin(), figures_.end(), [&](const Figure& one) { return one.id == id; });
  return found == figures_.end() ? nullptr : &*found;
}

std::optional<size_t> Model::place(std::string_view id) const {
  if (const Input* input = find_input(id)) return static_cast<size_t>(input - inputs_.data());
  if (const Figure* figure = find_figure(id)) return inputs_.size() + static_cast<size_t>(figure - figures_.data());
  return std::nullopt;
}

Values Model::defaults() const {
  Values values;
  for (const Input& input : inputs_) values.push_back(input.value);
  return values;
}

Values Model::compute(Values inputs) const {
  CHECK(inputs.size() == inputs_.size());
  inputs.reserve(inputs_.size() + figures_.size());
  for (const Figure& figure : figures_) inputs.push_back(planner::compute(*figure.formula, inputs));
  return inputs;
}

Status Model::check(std::span<const double> inputs) const {
  CHECK(inputs.size() == inputs_.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = inputs_[i];
    const double value = inputs[i];
    const bool fits = std::isfinite(value) && value <= 1e30 &&
                      (input.bound == Bound::kPositive   ? value >= 1e-30
                       : input.bound == Bound::kFraction ? value >= 0 && value <= 1
                                                         : value >= 0);
    if (fits) continue;
    const std::string expected = input.bound == Bound::kPositive   ? "a number above 0"
                                 : input.bound == Bound::kFraction ? "0 % to 100 %"
                                                                   : "a number from 0";
    return Error(Code::kInvalidArgument, "{} ({}): found {}, expected {}", input.id, input.label,
                 write_value(value, input.unit, input.scale), expected);
  }
  return {};
}

double Model::value(const Values& values, std::string_view id) const {
  const auto at = place(id);
  CHECK(at.has_value());
  return values[*at];
}

std::string Model::text(const Values& values, std::string_view id) const {
  const double base = value(values, id);
  if (const Input* input = find_input(id)) return write_value(base, input->unit, input->scale);
  const Figure* figure = find_figure(id);
  return write_value(base, figure->unit, figure->scale);
}

bool agrees(const Figure& figure, double value) {
  CHECK(figure.claim.has_value());
  const auto& [claimed, step, text] = *figure.claim;
  const double over = value / figure.scale - claimed;
  const double slack = 1e-9 * std::abs(claimed);
  return over >= -step / 2 - slack && over < std::max(step, slack);
}

std::string fill(const Model& model, const Values& values, std::string_view text) {
  std::string filled;
  while (!text.empty()) {
    const size_t open = text.find('{');
    const size_t close = text.find('}', open);
    if (close == std::string_view::npos) break;
    filled += text.substr(0, open);
    filled += model.text(values, text.substr(open + 1, close - open - 1));
    text.remove_prefix(close + 1);
  }
  return filled + std::string(text);
}

std::vector<std::string> notes_of(const Model& model, const Values& values) {
  std::vector<std::string> lines;
  for (const Note& note : model.notes())
    if (compute(*note.condition, values) > 0) lines.push_back(fill(model, values, note.text));
  return lines;
}

// ---- Explaining
// ------------------------------------------------------------------------------------------------------

namespace {

void collect(const Node& node, std::vector<int>& variables) {
  if (node.operation == Operation::kVariable &&
      std::find(variables.begin(), variables.end(), node.variable) == variables.end())
    variables.push_back(node.variable);
  if (node.left) collect(*node.left, variables);
  if (node.right) collect(*node.right, variables);
}

std::string source_line(const std::string& source, Confidence confidence) {
  return fmt::format("{}{}confidence {}", source, source.empty() ? "" : "; ", confidence_name(confidence));
}

}  // namespace

Result<std::string> explain(const Model& model, const Values& values, std::string_view id) {
  if (const Input* input = model.find_input(id)) {
    return fmt::format("{}: {}\n  = {}   an input; plausible {} to {}\n  source: {}\n", id, input->label,
                       model.text(values, id), write_value(input->low, input->unit, input->scale),
                       write_value(input->high, input->unit, input->scale),
                       source_line(input->source, input->confidence));
  }
  const Figure* figure = model.find_figure(id);
  if (figure == nullptr) {
    std::string known;
    for (const Figure& one : model.figures()) known += (known.empty() ? "" : ", ") + one.id;
    return Error(Code::kNotFound, "no figure '{}'; expected one of {}", id, known);
  }
  const auto name_of = [&](size_t place) {
    const size_t inputs = model.inputs().size();
    return place < inputs ? model.inputs()[place].id : model.figures()[place - inputs].id;
  };
  const auto number_text = [](const Node& node) { return write_value(node.number, node.unit, node.scale); };
  const std::string symbols = write(*figure->formula, Notation::kText, [&](const Node& node) {
    return node.operation == Operation::kNumber ? number_text(node) : name_of(static_cast<size_t>(node.variable));
  });
  const std::string numbers = write(*figure->formula, Notation::kText, [&](const Node& node) {
    return node.operation == Operation::kNumber ? number_text(node)
                                                : model.text(values, name_of(static_cast<size_t>(node.variable)));
  });
  std::string text =
      fmt::format("{}: {}\n  = {}\n  = {}\n  = {}\n", id, figure->label, symbols, numbers, model.text(values, id));
  if (figure->claim) {
    text += fmt::format("  the source says {}: {}\n", figure->claim->text,
                        agrees(*figure, model.value(values, id)) ? "agrees" : "does not agree");
  }
  text += fmt::format("  {}\n", source_line(figure->source, figure->confidence));
  std::vector<int> variables;
  collect(*figure->formula, variables);
  if (!variables.empty()) text += "with\n";
  for (const int variable : variables) {
    const std::string name = name_of(static_cast<size_t>(variable));
    const Input* input = model.find_input(name);
    text += fmt::format("  {:<24} {:<28} {}\n", name, model.text(values, name),
                        input != nullptr
                            ? fmt::format("{} ({})", input->label, source_line(input->source, input->confidence))
                            : fmt::format("{} (computed; --explain {})", model.find_figure(name)->label, name));
  }
  for (const Finding& finding : model.findings()) {
    if (figure->findings.find(finding.letter) == std::string::npos) continue;
    text += fmt::format("finding ({}): {}\n", finding.letter, fill(model, values, finding.text));
  }
  return text;
}

std::vector<Effect> sensitivity(const Model& model, const Values& values, size_t figure) {
  const size_t count = model.inputs().size();
  const Values base(values.begin(), values.begin() + static_cast<ptrdiff_t>(count));
  std::vector<Effect> effects;
  for (size_t i = 0; i < count; ++i) {
    const Input& input = model.inputs()[i];
    const auto with = [&](double value) {
      Values changed = base;
      changed[i] = input.bound == Bound::kFraction ? std::clamp(value, 0.0, 1.0) : value;
      return model.compute(std::move(changed))[figure];
    };
    const Effect effect{i, with(base[i] * 0.9), with(base[i] * 1.1), with(input.low), with(input.high)};
    if (effect.down == effect.up && effect.at_low == effect.at_high) continue;
    effects.push_back(effect);
  }
  const auto size = [](const Effect& effect) {
    const double swing = std::abs(effect.up - effect.down);
    return std::isfinite(swing) ? swing : 1e300;
  };
  std::stable_sort(effects.begin(), effects.end(), [&](const Effect& a, const Effect& b) { return size(a) > size(b); });
  return effects;
}

}  // namespace deepinfer::planner
