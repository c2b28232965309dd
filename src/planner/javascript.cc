// The models as a JavaScript module. Formulas come out of the same trees that C++ computes, in the same order of
// operations, so both give the same bits.
#include <fmt/core.h>

#include "json/json.h"
#include "planner/planner.h"

namespace deepinfer::planner {
namespace {

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string bound_name(Bound bound) {
  switch (bound) {
    case Bound::kPositive:
      return "positive";
    case Bound::kNotNegative:
      return "not negative";
    case Bound::kFraction:
      return "fraction";
  }
  return "";
}

void write_model(const Model& model, std::string& out) {
  out += fmt::format("models[{}] = {{\n  name: {}, title: {},\n  inputs: [\n", quoted(model.name()),
                     quoted(model.name()), quoted(model.title()));
  for (const Input& input : model.inputs()) {
    out += fmt::format(
        "    {{ id: {}, label: {}, group: {}, value: {}, low: {}, high: {}, unit: {}, scale: {}, bound: {}, source: "
        "{}, confidence: {} }},\n",
        quoted(input.id), quoted(input.label), quoted(input.group), input.value, input.low, input.high,
        quoted(input.unit), input.scale, quoted(bound_name(input.bound)), quoted(input.source),
        quoted(confidence_name(input.confidence)));
  }
  out += "  ],\n  figures: [\n";
  const size_t count = model.inputs().size();
  const auto name_of = [&](int place) {
    const auto at = static_cast<size_t>(place);
    return at < count ? model.inputs()[at].id : model.figures()[at - count].id;
  };
  for (const Figure& figure : model.figures()) {
    const std::string formula = write(*figure.formula, Notation::kText, [&](const Node& node) {
      return node.operation == Operation::kNumber ? write_value(node.number, node.unit, node.scale)
                                                  : fmt::format("{{{}}}", name_of(node.variable));
    });
    out += fmt::format(
        "    {{ id: {}, label: {}, group: {}, unit: {}, scale: {}, number: {}, findings: {}, source: {}, confidence: "
        "{}, formula: {}",
        quoted(figure.id), quoted(figure.label), quoted(figure.group), quoted(figure.unit), figure.scale, figure.number,
        quoted(figure.findings), quoted(figure.source), quoted(confidence_name(figure.confidence)), quoted(formula));
    if (figure.claim)
      out += fmt::format(", claim: {{ value: {}, step: {}, text: {} }}", figure.claim->value, figure.claim->step,
                         quoted(figure.claim->text));
    out += " },\n";
  }
  out += "  ],\n  findings: [\n";
  for (const Finding& finding : model.findings())
    out += fmt::format("    {{ letter: \"{}\", text: {} }},\n", finding.letter, quoted(finding.text));
  const auto javascript = [](const Node& node) {
    return node.operation == Operation::kNumber ? fmt::format("{}", node.number) : fmt::format("v[{}]", node.variable);
  };
  out += "  ],\n  notes: [\n";
  for (const Note& note : model.notes())
    out += fmt::format("    {{ holds: (v) => {} > 0, text: {} }},\n",
                       write(*note.condition, Notation::kJavaScript, javascript), quoted(note.text));
  out +=
      "  ],\n  // Base units in; the figures are appended.\n  compute(inputs) {\n    const v = Array.from(inputs);\n";
  for (size_t i = 0; i < model.figures().size(); ++i) {
    out += fmt::format("    v[{}] = {};\n", count + i,
                       write(*model.figures()[i].formula, Notation::kJavaScript, javascript));
  }
  out += "    return v;\n  },\n};\n";
}

}  // namespace

std::string write_javascript() {
  std::string out = R"(// Made from the formulas in src/planner/ when the program is built; do not edit.
function wholePower(x, n) {
  let result = 1;
  for (let left = Math.min(Math.max(Math.floor(n + 0.5), 0), 2147483647); left > 0; left = Math.floor(left / 2)) {
    if (left % 2 === 1) result *= x;
    x *= x;
  }
  return result;
}

export const models = {};
)";
  for (const Model* model : all_models()) write_model(*model, out);
  out += "export const hardware = [\n";
  for (const Hardware& one : hardware_profiles()) {
    out +=
        fmt::format("  {{ name: {}, label: {}, card: {}, source: {}, confidence: {}, notes: [", quoted(one.name),
                    quoted(one.label), quoted(one.card), quoted(one.source), quoted(confidence_name(one.confidence)));
    for (const std::string& note : one.notes) out += quoted(note) + ", ";
    out += "], inputs: { ";
    for (const auto& [id, value] : one.inputs) out += fmt::format("{}: {}, ", id, value);
    out += "} },\n";
  }
  out += "];\n// [input of a deployment, figure of a server]\nexport const serverInputs = [\n";
  for (const auto& [input, figure] : server_inputs())
    out += fmt::format("  [{}, {}],\n", quoted(input), quoted(figure));
  return out + "];\n";
}

}  // namespace deepinfer::planner
