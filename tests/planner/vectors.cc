// planner_vectors SEED COUNT: inputs and what the formulas make of them, as JSON lines, for the test of the page's
// module. The first line of each model has the defaults, the others inputs drawn from their ranges, far ends and odd
// values included.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "json/json.h"
#include "planner/planner.h"

namespace deepinfer::planner {
namespace {

// Every double, exactly; what JSON has no form for as text.
void write_numbers(JsonWriter& writer, std::span<const double> numbers) {
  writer.begin_array();
  for (const double number : numbers) {
    if (std::isfinite(number)) {
      writer.value(number);
    } else {
      writer.value(std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
    }
  }
  writer.end_array();
}

double draw(const Input& input, std::mt19937_64& random) {
  const auto share = [&] { return std::uniform_real_distribution<double>(0, 1)(random); };
  switch (random() % 8) {
    case 0:
      return input.low;
    case 1:
      return input.high;
    case 2:
      return input.value;
    case 3:
      return input.bound == Bound::kFraction ? std::round(share()) : input.value * std::pow(10, 8 * share() - 4);
    default:
      return input.low + (input.high - input.low) * share();
  }
}

void write_case(const Model& model, Values inputs) {
  const Values values = model.compute(std::move(inputs));
  std::string line;
  JsonWriter writer(line);
  writer.begin_object().member("model", model.name()).key("inputs");
  write_numbers(writer, std::span(values).first(model.inputs().size()));
  writer.key("figures");
  write_numbers(writer, std::span(values).subspan(model.inputs().size()));
  writer.key("texts").begin_array();
  for (const Input& input : model.inputs()) writer.value(model.text(values, input.id));
  for (const Figure& figure : model.figures()) writer.value(model.text(values, figure.id));
  writer.end_array().key("notes").begin_array();
  for (const std::string& note : notes_of(model, values)) writer.value(note);
  writer.end_array().key("agrees").begin_array();
  for (const Figure& figure : model.figures())
    if (figure.claim) writer.value(agrees(figure, model.value(values, figure.id)));
  writer.end_array().key("strongest");
  const auto effects = sensitivity(model, values, values.size() - 1);
  writer.begin_array();
  for (const Effect& effect : effects) {
    writer.begin_object().member("id", model.inputs()[effect.input].id).key("ends");
    write_numbers(writer, std::array{effect.down, effect.up, effect.at_low, effect.at_high});
    writer.end_object();
  }
  writer.end_array().end_object();
  std::printf("%s\n", line.c_str());
}

void write_server(std::mt19937_64& random) {
  const double speed = std::pow(10, std::uniform_real_distribution<double>(-1, 2)(random));
  std::map<std::string, double> given;
  for (const char* id : {"cores", "bandwidth", "memory", "drives"})
    given[id] = draw(*machine_model().find_input(id), random);
  const auto server = cpu_server("cpu", given, speed);
  std::string line;
  JsonWriter writer(line);
  writer.begin_object().key("server").begin_object();
  for (const auto& [id, value] : given) writer.member(id, value);
  writer.end_object().member("speed", speed).member("ok", server.ok());
  if (server.ok()) {
    writer.key("hardware").begin_object();
    for (const auto& [id, value] : server->inputs) writer.member(id, value);
    writer.end_object().member("label", server->label);
    const auto plan = plan_deployment(*server, {{"user_speed", speed}});
    if (plan.ok()) {
      writer.key("values");
      write_numbers(writer, *plan);
    }
  }
  writer.end_object();
  std::printf("%s\n", line.c_str());
}

}  // namespace
}  // namespace deepinfer::planner

int main(int argc, char** argv) {
  using namespace deepinfer::planner;
  if (argc != 3) return 2;
  std::mt19937_64 random(std::strtoull(argv[1], nullptr, 10));
  const int count = std::atoi(argv[2]);
  for (const Model* model : all_models()) {
    write_case(*model, model->defaults());
    for (int i = 0; i < count; ++i) {
      Values inputs;
      for (const Input& input : model->inputs()) inputs.push_back(draw(input, random));
      write_case(*model, std::move(inputs));
    }
  }
  for (int i = 0; i < 50; ++i) write_server(random);
  return 0;
}
