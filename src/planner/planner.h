// The planner: models of a deployment as formulas (model.h), hardware to put into them, and a plan made of both.
//
//   production_model()  the published service: 28 figures recomputed, findings where they do not add up
//   deployment_model()  your traffic on given cards: how many, the store, latency, cost
//   machine_model()     what one CPU server does with this model, from its bandwidth and arithmetic
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "planner/model.h"

namespace deepinfer::planner {

const Model& production_model();
const Model& deployment_model();
const Model& machine_model();
std::vector<const Model*> all_models();

// What a deployment is built of: a name, and values for inputs of the deployment model (base units).
struct Hardware {
  std::string name, label;
  std::string card = "card";  // what one of them is called
  std::map<std::string, double> inputs;
  std::string source;
  Confidence confidence = Confidence::kMedium;
  std::vector<std::string> notes;  // what a reader has to know
};
const std::vector<Hardware>& hardware_profiles();

// Values of the machine model that `spec` states: "cpu:2x64c-ddr5-1536g,nvme:2x7.68t" is two sockets of 64 cores each,
// DDR5, 1,536 GB, two drives. The error says what was found and expected.
Result<std::map<std::string, double>> parse_machine(std::string_view spec);
// The largest number of answers at a time, up to 4,096, at which each still has the speed (base units); 0 when one
// alone has less.
int64_t most_answers(Values machine_inputs, double user_speed);
// Which figures of the machine model are which inputs of a deployment on such servers.
const std::vector<std::pair<std::string, std::string>>& server_inputs();
// The server as hardware. `machine` overrides inputs of the machine model, as parse_machine() returns them.
Result<Hardware> cpu_server(const std::string& name, const std::map<std::string, double>& machine, double user_speed);
// A name of a profile or a spec of a machine.
Result<Hardware> find_hardware(const std::string& name, double user_speed);

// Values of the deployment model for hardware and traffic; `given` wins over the hardware. kInvalidArgument as check().
Result<Values> plan_deployment(const Hardware& hardware, const std::map<std::string, double>& given);
// What the reader of a plan should look at, one line each: of the hardware and of the plan.
std::vector<std::string> plan_notes(const Hardware& hardware, const Values& values);

// Inputs by name with their units: {"requests": "50 requests/s"}, or lines "requests,50,requests/s" under a header
// "name,value,unit". Errors name the place.
Result<std::map<std::string, double>> read_inputs_json(std::string_view text, const Model& model);
Result<std::map<std::string, double>> read_inputs_csv(std::string_view text, const Model& model);
std::string write_json(const Model& model, const Values& values);
std::string write_csv(const Model& model, const Values& values);

// All models, the hardware and the rules of writing numbers as one JavaScript module (no imports).
std::string write_javascript();

}  // namespace deepinfer::planner
