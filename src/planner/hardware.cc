// Cards that were measured by somebody, and CPU servers by arithmetic.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "planner/planner.h"

namespace deepinfer::planner {
namespace {

Hardware profile(std::string name, std::string label, std::map<std::string, double> inputs, std::string source,
                 Confidence confidence, std::vector<std::string> notes) {
  return {std::move(name),   std::move(label), "card",          std::move(inputs),
          std::move(source), confidence,       std::move(notes)};
}

std::map<std::string, double> rates(double prefill, double misses, double decode, double speed, double unit) {
  return {{"prefill_rate", prefill}, {"miss_rate", misses},  {"decode_rate", decode},
          {"speed_at_rate", speed},  {"prefill_unit", unit}, {"decode_unit", unit}};
}

std::map<std::string, double> with(std::map<std::string, double> inputs, const std::map<std::string, double>& more) {
  for (const auto& [name, value] : more) inputs[name] = value;
  return inputs;
}

// Bandwidth of a socket.
struct MemoryKind {
  std::string_view name;
  double bytes_per_second;
};
constexpr MemoryKind kMemoryKinds[] = {
    {"ddr4", 8 * 25.6e9},                                 // 8 channels, 3200
    {"ddr5", 12 * 38.4e9},                                // 12 channels, 4800
    {"ddr5-8ch", 8 * 38.4e9},                             // 8 channels, 4800
    {"ddr5-6400", 12 * 51.2e9}, {"mrdimm", 12 * 70.4e9},  // 8800
};

// A number in front of `text`, cut off; nullopt when there is none above 0.
std::optional<double> take_number(std::string_view& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !(number > 0) || number > 1e6) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

bool parse_processors(std::string_view text, std::map<std::string, double>& inputs) {
  const auto sockets = take_number(text);
  if (!sockets || !take(text, "x")) return false;
  const auto cores = take_number(text);
  if (!cores || !take(text, "c-")) return false;
  if (*sockets != std::floor(*sockets) || *cores != std::floor(*cores)) return false;
  inputs["sockets"] = *sockets;
  inputs["cores"] = *cores;
  // The longest name first: "ddr5-8ch" begins with "ddr5".
  const MemoryKind* kind = nullptr;
  for (const MemoryKind& one : kMemoryKinds)
    if (text.starts_with(one.name) && (kind == nullptr || one.name.size() > kind->name.size())) kind = &one;
  if (kind == nullptr) return false;
  text.remove_prefix(kind->name.size());
  inputs["bandwidth"] = kind->bytes_per_second;
  if (text.empty()) return true;
  if (!take(text, "-")) return false;
  const auto memory = take_number(text);
  if (!memory || text != "g") return false;
  inputs["memory"] = *memory * 1e9;
  return true;
}

bool parse_drives(std::string_view text, std::map<std::string, double>& inputs) {
  const auto drives = take_number(text);
  if (!drives || *drives != std::floor(*drives)) return false;
  inputs["drives"] = *drives;
  if (text.empty()) return true;
  if (!take(text, "x")) return false;
  const auto size = take_number(text);
  if (!size || text != "t") return false;
  inputs["drive_size"] = *size * 1e12;
  return true;
}

}  // namespace

const std::vector<Hardware>& hardware_profiles() {
  static const std::vector<Hardware> profiles = [] {
    constexpr char kOneStream[] =
        "decode was measured with one answer at a time: a batch does more, so decode cards are an upper bound";
    constexpr char kGuess[] = "price and rent are placeholders; set card_price and rent";
    std::vector<Hardware> all;
    all.push_back(profile("published", "card of the published service (64-card decode units)",
                          with(rates(1.5e6, 6e4, 1.4e4, 230, 64), {{"prefill_unit", 8}, {"tokens_per_step", 3.51}}),
                          "analyst primer on DeepInfer, v1.4", Confidence::kMedium,
                          {"the card is not named; rates are those of a fleet with 96 % hits"}));
    all.push_back(
        profile("gb300", "GB300, unit of 4", rates(142565, 76000 / 4.0, 1740 / 4.0, 1740, 4),
                "InferenceX PR 2958 and following (input and hits); basetenlabs/deepseek-ultrafast (prefill, decode)",
                Confidence::kLow, {kOneStream, kGuess}));
    all.push_back(profile("b300", "B300, unit of 8", rates(142565, 85000 / 8.0, 2060 / 8.0, 2060, 8),
                          "basetenlabs/deepseek-ultrafast; hits as GB300", Confidence::kLow, {kOneStream, kGuess}));
    all.push_back(profile("dgx-spark", "four DGX Spark",
                          with(rates(6.7e6, 2000, 340, 42.5, 1), {{"card_price", 16000}, {"rent", 1 / kHour}}),
                          "rhys101/DeepSeek-V4.1-Flash-SGLang-DGX-Spark-4-NVMe: 340 tokens/s in 8 answers",
                          Confidence::kMedium, {kGuess}));
    all.push_back(profile("rtx-3090", "RTX 3090 with 256 GB, 3 bits a weight",
                          with(rates(6.7e6, 740, 26.6, 6.65, 1), {{"card_price", 5000}, {"rent", 0.3 / kHour}}),
                          "0xSero/dsv41-flash-offload: 4 answers", Confidence::kMedium,
                          {"weights at 3 bits are not the released numbers", kGuess}));
    all.push_back(profile("m3-ultra", "M3 Ultra, 512 GB, 4 bits a weight",
                          with(rates(6.7e6, 455, 33, 33, 1), {{"card_price", 9500}, {"rent", 0.5 / kHour}}),
                          "jundot/omlx 0.7.0: one answer, with drafts", Confidence::kMedium, {kOneStream, kGuess}));
    for (Hardware& one : all)
      if (one.inputs["decode_unit"] == 1) {
        one.card = "machine";
        one.inputs["tokens_per_step"] = 1;
      }
    return all;
  }();
  return profiles;
}

Result<std::map<std::string, double>> parse_machine(std::string_view spec) {
  std::map<std::string, double> inputs;
  std::string_view rest = spec;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    std::string_view text = part;
    const bool fits = take(text, "cpu:")    ? parse_processors(text, inputs)
                      : take(text, "nvme:") ? parse_drives(text, inputs)
                                            : false;
    if (fits) continue;
    std::string kinds;
    for (const MemoryKind& kind : kMemoryKinds) kinds += fmt::format("{}{}", kinds.empty() ? "" : ", ", kind.name);
    return Error(
        Code::kInvalidArgument,
        "hardware '{}': found '{}', expected cpu:SOCKETSxCORESc-MEMORY[-GIGABYTESg] or nvme:DRIVES[xTERABYTESt], as in "
        "'cpu:2x64c-ddr5-1536g,nvme:2x7.68t'; MEMORY is one of {}",
        spec, part, kinds);
  }
  if (!inputs.contains("cores"))
    return Error(Code::kInvalidArgument, "hardware '{}': found no part 'cpu:…', expected one", spec);
  return inputs;
}

int64_t most_answers(Values machine_inputs, double user_speed) {
  const Model& machine = machine_model();
  const auto speed = [&](int64_t answers) {
    machine_inputs[*machine.place("answers")] = static_cast<double>(answers);
    return machine.value(machine.compute(machine_inputs), "user_speed");
  };
  int64_t fits = 0, fails = 4097;
  while (fails - fits > 1) {
    const int64_t middle = (fits + fails) / 2;
    (speed(middle) >= user_speed ? fits : fails) = middle;
  }
  return fits;
}

const std::vector<std::pair<std::string, std::string>>& server_inputs() {
  static const std::vector<std::pair<std::string, std::string>> pairs = {{"prefill_rate", "load_rate"},
                                                                         {"miss_rate", "miss_rate"},
                                                                         {"decode_rate", "decode_rate"},
                                                                         {"speed_at_rate", "user_speed"},
                                                                         {"tokens_per_step", "tokens_per_step"},
                                                                         {"drive_read", "drive_read"},
                                                                         {"drive_size", "drive_size"},
                                                                         {"card_price", "price"},
                                                                         {"rent", "rent"},
                                                                         {"card_hour", "rent"}};
  return pairs;
}

Result<Hardware> cpu_server(const std::string& name, const std::map<std::string, double>& given, double user_speed) {
  const Model& machine = machine_model();
  Values inputs = machine.defaults();
  for (const auto& [id, value] : given) inputs[*machine.place(id)] = value;
  RETURN_IF_ERROR(machine.check(inputs));
  const int64_t answers = most_answers(inputs, user_speed);
  inputs[*machine.place("answers")] = static_cast<double>(std::max<int64_t>(1, answers));
  const Values values = machine.compute(inputs);
  const auto of = [&](std::string_view id) { return machine.value(values, id); };
  if (of("memory_left") < 0)
    return Error(Code::kInvalidArgument,
                 "hardware '{}': the weights take {}, found {} of memory; expected more, as in 'cpu:2x64c-ddr5-1536g'",
                 name, machine.text(values, "memory_needed"), machine.text(values, "memory"));
  if (answers == 0)
    return Error(Code::kInvalidArgument,
                 "hardware '{}': one answer alone reaches {}, found a wanted speed of {:.4g} tokens/s per user; "
                 "expected at most what it reaches (--user-speed)",
                 name, machine.text(values, "user_speed"), user_speed);
  Hardware hardware{name,
                    fmt::format("CPU server, {} answers at a time", answers),
                    "server",
                    {{"prefill_unit", 1}, {"decode_unit", 1}},
                    "the floor of docs/performance.md with the shares reached there",
                    Confidence::kMedium,
                    notes_of(machine, values)};
  for (const auto& [input, figure] : server_inputs()) hardware.inputs[input] = of(figure);
  return hardware;
}

Result<Hardware> find_hardware(const std::string& name, double user_speed) {
  std::string names;
  for (const Hardware& one : hardware_profiles()) {
    if (one.name == name) return one;
    names += (names.empty() ? "" : ", ") + one.name;
  }
  if (name.find(':') == std::string::npos)
    return Error(Code::kInvalidArgument,
                 "hardware: found '{}', expected one of {}, or a server as 'cpu:2x64c-ddr5,nvme:2'", name, names);
  ASSIGN_OR_RETURN(const auto machine, parse_machine(name));
  return cpu_server(name, machine, user_speed);
}

Result<Values> plan_deployment(const Hardware& hardware, const std::map<std::string, double>& given) {
  const Model& model = deployment_model();
  Values inputs = model.defaults();
  for (const auto& values : {hardware.inputs, given})
    for (const auto& [id, value] : values) {
      CHECK(model.find_input(id) != nullptr);
      inputs[*model.place(id)] = value;
    }
  RETURN_IF_ERROR(model.check(inputs));
  return model.compute(std::move(inputs));
}

std::vector<std::string> plan_notes(const Hardware& hardware, const Values& values) {
  std::vector<std::string> lines = hardware.notes;
  for (std::string& line : notes_of(deployment_model(), values)) lines.push_back(std::move(line));
  return lines;
}

}  // namespace deepinfer::planner
