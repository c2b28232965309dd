// Inputs and results as JSON and CSV.
#include <fmt/core.h>

#include <algorithm>

#include "json/json.h"
#include "planner/planner.h"

namespace deepinfer::planner {
namespace {

Status enter(const Model& model, const std::string& name, std::string_view text,
             std::map<std::string, double>& inputs) {
  const Input* input = model.find_input(name);
  if (input == nullptr) {
    std::string known;
    for (const Input& one : model.inputs()) known += (known.empty() ? "" : ", ") + one.id;
    return Error(Code::kInvalidArgument, "found the name '{}', expected an input: {}", name, known);
  }
  ASSIGN_OR_RETURN(const double value, parse_value(text, *input));
  if (!inputs.emplace(name, value).second)
    return Error(Code::kInvalidArgument, "{}: found a second value, expected one", name);
  return {};
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> cells;
  while (true) {
    const size_t comma = std::min(line.find(','), line.size());
    std::string_view cell = line.substr(0, comma);
    if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') cell = cell.substr(1, cell.size() - 2);
    cells.push_back(cell);
    if (comma == line.size()) return cells;
    line.remove_prefix(comma + 1);
  }
}

std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\n") == std::string_view::npos) return std::string(text);
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? "\"\"" : std::string(1, c);
  return cell + '"';
}

// A number with its unit as parse_value() takes it.
std::string joined(std::string_view number, std::string_view unit) {
  return fmt::format("{} {}", number, unit);
}

}  // namespace

Result<std::map<std::string, double>> read_inputs_json(std::string_view text, const Model& model) {
  ASSIGN_OR_RETURN(const JsonValue document, parse_json(text, {.duplicate_keys = DuplicateKeys::kError}));
  std::map<std::string, double> inputs;
  const JsonRef root(document);
  if (const JsonRef list = root["inputs"]; list.present()) {  // as write_json() has it
    ASSIGN_OR_RETURN(const auto entries, list.array());
    for (const JsonRef& entry : entries) {
      ASSIGN_OR_RETURN(const std::string name, entry["name"].string());
      ASSIGN_OR_RETURN(const double number, entry["value"].number());
      ASSIGN_OR_RETURN(const std::string unit, entry["unit"].string());
      const Status entered = enter(model, name, joined(fmt::format("{}", number), unit), inputs);
      if (!entered.ok()) return entered.error().in(entry.path());
    }
    return inputs;
  }
  ASSIGN_OR_RETURN(const JsonValue::Object* members, root.object());
  for (const auto& [name, value] : *members) {
    std::string given;
    if (value.string() != nullptr) {
      given = *value.string();
    } else if (const auto number = value.number()) {
      given = fmt::format("{}", *number);
    } else {
      return Error(Code::kInvalidArgument, "{}: found {}, expected a string such as \"50 requests/s\"", name,
                   value.kind_name());
    }
    const Status entered = enter(model, name, given, inputs);
    if (!entered.ok()) return entered.error();
  }
  return inputs;
}

Result<std::map<std::string, double>> read_inputs_csv(std::string_view text, const Model& model) {
  std::map<std::string, double> inputs;
  for (int line_number = 1; !text.empty(); ++line_number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto cells = split(line);
    if (line_number == 1) {
      if (cells.size() < 3 || cells[0] != "name" || cells[1] != "value" || cells[2] != "unit")
        return Error(Code::kInvalidArgument, "line 1: found '{}', expected the header name,value,unit", line);
      continue;
    }
    if (line.empty() || (cells.size() > 3 && cells[3] == "figure")) continue;
    const std::string where = fmt::format("line {}", line_number);
    if (cells.size() < 3)
      return Error(Code::kInvalidArgument, "{}: found {} cells, expected name,value,unit", where, cells.size());
    const Status entered = enter(model, std::string(cells[0]), joined(cells[1], cells[2]), inputs);
    if (!entered.ok()) return entered.error().in(where);
  }
  return inputs;
}

std::string write_json(const Model& model, const Values& values) {
  std::string out;
  JsonWriter writer(out);
  writer.begin_object().member("model", model.name());
  const auto entry = [&](const auto& one) {
    return &writer.begin_object()
                .member("name", one.id)
                .member("label", one.label)
                .member("group", one.group)
                .member("value", model.value(values, one.id) / one.scale)
                .member("unit", one.unit)
                .member("text", model.text(values, one.id));
  };
  writer.key("inputs").begin_array();
  for (const Input& input : model.inputs())
    entry(input)->member("source", input.source).member("confidence", confidence_name(input.confidence)).end_object();
  writer.end_array().key("figures").begin_array();
  for (const Figure& figure : model.figures()) {
    entry(figure);
    if (figure.number != 0) writer.member("number", figure.number);
    if (!figure.findings.empty()) writer.member("findings", figure.findings);
    if (figure.claim) {
      writer.key("published")
          .begin_object()
          .member("value", figure.claim->value)
          .member("text", figure.claim->text)
          .member("agrees", agrees(figure, model.value(values, figure.id)))
          .end_object();
    }
    writer.member("confidence", confidence_name(figure.confidence)).end_object();
  }
  writer.end_array().key("findings").begin_array();
  for (const Finding& finding : model.findings())
    writer.begin_object()
        .member("letter", std::string(1, finding.letter))
        .member("text", fill(model, values, finding.text))
        .end_object();
  writer.end_array().end_object();
  return out;
}

std::string write_csv(const Model& model, const Values& values) {
  std::string out = "name,value,unit,kind,label\n";
  const auto line = [&](const auto& one, std::string_view kind) {
    out += fmt::format("{},{},{},{},{}\n", one.id, model.value(values, one.id) / one.scale, csv_cell(one.unit), kind,
                       csv_cell(one.label));
  };
  for (const Input& input : model.inputs()) line(input, "input");
  for (const Figure& figure : model.figures()) line(figure, "figure");
  return out;
}

}  // namespace deepinfer::planner
