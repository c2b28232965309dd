#include "verify/generator_calls.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "verify/generator.h"

namespace deepinfer::golden {
namespace {

constexpr std::array<std::string_view, 5> kKinds = {"packed bytes", "e4m3", "e8m0", "bf16", "f32"};
constexpr uint64_t kMostSeedsOfARange = 1000;

std::string_view trimmed(std::string_view text, std::string_view junk = " ") {
  const size_t first = text.find_first_not_of(junk);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(junk) + 1 - first);
}

bool parse_number(std::string_view text, uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// "200+10i+1+j": a sum of numbers, and of numbers times i or j.
bool parse_formula(std::string_view text, SeedFormula& seed) {
  while (!text.empty()) {
    std::string_view term = text.substr(0, text.find('+'));
    text.remove_prefix(std::min(text.size(), term.size() + 1));
    uint64_t* part = &seed.base;
    if (term.ends_with('i')) part = &seed.per_i;
    if (term.ends_with('j')) part = &seed.per_j;
    uint64_t number = 1;
    if (part != &seed.base) term.remove_suffix(1);
    if ((!term.empty() || part == &seed.base) && !parse_number(term, number)) return false;
    *part += number;
  }
  return true;
}

// One seed, or all of a range "510..513".
bool parse_seeds(std::string_view text, std::vector<SeedFormula>& seeds) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) return parse_formula(text, seeds.emplace_back());
  uint64_t first = 0, last = 0;
  if (!parse_number(text.substr(0, dots), first) || !parse_number(text.substr(dots + 2), last)) return false;
  if (last < first || last - first >= kMostSeedsOfARange) return false;
  for (uint64_t seed = first; seed <= last; ++seed) seeds.push_back({seed, 0, 0});
  return true;
}

struct SeedAndParameters {
  SeedFormula seed;
  std::vector<int> parameters;
};

// "seed 2001, base 112", "seeds 1102,1104 base 121; 1106 base 119", "seed 7+i, e0 = 55,75": parameters belong to the
// seeds before them, up to a semicolon.
bool parse_arguments(std::string_view text, std::vector<SeedAndParameters>& all) {
  bool in_parameters = false;
  size_t group = 0;  // first of the seeds that the next parameters belong to
  while (!text.empty()) {
    const size_t length = std::min(text.find_first_of(" ,;="), text.size());
    const std::string_view word = text.substr(0, length);
    if (word == "seed" || word == "seeds") {
      in_parameters = false;
    } else if (word == "e0" || word == "sh" || word == "base") {
      in_parameters = true;
    } else if (!word.empty() && in_parameters) {
      uint64_t number = 0;
      if (!parse_number(word, number) || number > 255) return false;
      for (size_t i = group; i < all.size(); ++i) all[i].parameters.push_back(static_cast<int>(number));
    } else if (!word.empty()) {
      std::vector<SeedFormula> seeds;
      if (!parse_seeds(word, seeds)) return false;
      for (const SeedFormula& seed : seeds) all.push_back({seed, {}});
    }
    if (length < text.size() && text[length] == ';') {
      in_parameters = false;
      group = all.size();
    }
    text.remove_prefix(std::min(text.size(), length + 1));
  }
  return !all.empty();
}

// "[4,len(pos),64]" at the beginning of the text; empty when there is none. Moves the text behind it.
Shape take_shape(std::string_view& text) {
  const size_t open = text.find_first_not_of(" |");
  if (open == std::string_view::npos || text[open] != '[') return {};
  const size_t close = text.find(']', open);
  if (close == std::string_view::npos) return {};
  Shape shape;
  std::string_view sizes = text.substr(open + 1, close - open - 1);
  while (!sizes.empty()) {
    const std::string_view size = sizes.substr(0, sizes.find(','));
    uint64_t number = 0;
    const bool known = parse_number(trimmed(size), number) && number <= uint64_t{1} << 40;
    shape.push_back(known ? static_cast<int64_t>(number) : -1);
    sizes.remove_prefix(std::min(sizes.size(), size.size() + 1));
  }
  text.remove_prefix(close + 1);
  return shape;
}

// What the words in front of a call say.
struct Heading {
  std::string section, name, kind;
  bool absolute = false;
};

Heading parse_heading(std::string_view words, std::string_view section) {
  Heading heading{.section = std::string(section), .name = {}, .kind = {}};
  if (const size_t colon = words.rfind(':'); colon != std::string_view::npos) {
    const size_t before = words.rfind(';', colon);
    const size_t first = before == std::string_view::npos ? 0 : before + 1;
    heading.section = trimmed(words.substr(first, colon - first));
    words.remove_prefix(colon + 1);
  }
  if (const size_t end = words.rfind(';'); end != std::string_view::npos) words.remove_prefix(end + 1);
  if (const size_t end = words.rfind(", "); end != std::string_view::npos) words.remove_prefix(end + 2);
  words = trimmed(words);
  for (const std::string_view kind : kKinds) {
    if (!words.ends_with(kind)) continue;
    heading.kind = kind;
    words.remove_suffix(kind.size());
    break;
  }
  heading.absolute = trimmed(words).ends_with('|');
  heading.name = trimmed(words, " =|");
  return heading;
}

// A part "dspark: the same with seeds 510..513": the calls of the part before, with these seeds.
Status add_same_calls(std::string_view text, std::vector<GeneratorCall>& calls) {
  constexpr std::string_view kMark = ": the same with seeds ";
  const size_t mark = text.find(kMark);
  if (mark == std::string_view::npos || calls.empty()) return {};
  const size_t before = text.rfind(';', mark);
  const std::string_view section = trimmed(text.substr(before + 1, mark - before - 1));  // npos + 1 is 0
  std::string_view range = text.substr(mark + kMark.size());
  range = range.substr(0, range.find_first_not_of("0123456789."));
  const std::string last_section = calls.back().section;
  std::vector<GeneratorCall> same;
  for (const GeneratorCall& call : calls) {
    if (call.section == last_section) same.push_back(call);
  }
  std::vector<SeedFormula> seeds;
  if (!parse_seeds(range, seeds) || seeds.size() != same.size()) {
    return Error(Code::kInvalidArgument, "inputs: '{}': found seeds '{}', expected a range of {}", section, range,
                 same.size());
  }
  for (size_t i = 0; i < same.size(); ++i) {
    same[i].section = section;
    same[i].seed = seeds[i];
    same[i].shape.clear();  // other sizes, perhaps
    calls.push_back(same[i]);
  }
  return {};
}

}  // namespace

Result<GeneratorCalls> GeneratorCalls::parse(std::string_view inputs) {
  GeneratorCalls all;
  all.text_ = inputs;
  std::string_view rest = inputs;
  std::string section;
  while (true) {
    const size_t open = rest.find("(seed");
    if (open == std::string_view::npos) break;
    const size_t close = rest.find(')', open);
    Heading heading = parse_heading(rest.substr(0, open), section);
    section = heading.section;
    std::vector<SeedAndParameters> arguments;
    if (close == std::string_view::npos || !parse_arguments(rest.substr(open + 1, close - open - 1), arguments)) {
      return Error(Code::kInvalidArgument, "inputs: found '{}', expected 'NAME KIND(seed S, PARAMETER N) [sizes]'",
                   trimmed(rest.substr(0, std::min(rest.size(), close))));
    }
    if (heading.kind.empty()) {  // "scales(seeds ...)" after "scales e8m0(seeds ...)"
      const auto same = std::find_if(all.calls_.begin(), all.calls_.end(),
                                     [&](const GeneratorCall& call) { return call.name == heading.name; });
      if (same == all.calls_.end()) {
        return Error(Code::kInvalidArgument, "inputs: '{}' has no kind: expected packed bytes, e4m3, e8m0, bf16 or f32",
                     heading.name);
      }
      heading.kind = same->kind;
    }
    rest.remove_prefix(close + 1);
    const Shape shape = take_shape(rest);
    for (const auto& [seed, parameters] : arguments) {
      all.calls_.push_back({heading.section, heading.name, heading.kind, seed, parameters, heading.absolute, shape});
    }
  }
  RETURN_IF_ERROR(add_same_calls(rest, all.calls_));
  return all;
}

Result<const GeneratorCall*> GeneratorCalls::find(std::string_view name, int n) const {
  const size_t colon = name.find(": ");
  const std::string_view section = colon == std::string_view::npos ? "" : name.substr(0, colon);
  const std::string_view words = colon == std::string_view::npos ? name : name.substr(colon + 2);
  const std::string ending = " " + std::string(words);
  for (const bool exact : {true, false}) {
    int left = n;
    for (const GeneratorCall& call : calls_) {
      if (!section.empty() && call.section != section) continue;
      if (exact ? call.name != words : !std::string_view(call.name).ends_with(ending)) continue;
      if (left-- == 0) return &call;
    }
  }
  return Error(Code::kNotFound, "inputs: found no generator call '{}' in '{}'", name, text_);
}

Result<const GeneratorCall*> GeneratorCalls::checked(std::string_view name, std::string_view kind, int64_t count,
                                                     int n) const {
  ASSIGN_OR_RETURN(const GeneratorCall* call, find(name, n));
  const bool has_parameter = kind == "e8m0" || kind == "bf16" || kind == "f32";
  if (call->kind != kind || call->parameters.size() < (has_parameter ? 1u : 0u)) {
    return Error(Code::kInvalidArgument, "inputs: '{}': found {} with {} parameters, expected {}{}", name, call->kind,
                 call->parameters.size(), kind, has_parameter ? " with one" : "");
  }
  int64_t known = 1;
  const bool all_known = std::all_of(call->shape.begin(), call->shape.end(), [](int64_t size) { return size >= 0; });
  if (all_known && !call->shape.empty()) known = static_cast<int64_t>(num_elements(call->shape).value_or(0));
  if (all_known && !call->shape.empty() && known != count) {
    return Error(Code::kInvalidArgument, "inputs: '{}': found sizes {}, expected {} elements", name,
                 shape_string(call->shape), count);
  }
  return call;
}

Result<std::vector<uint8_t>> GeneratorCalls::packed_bytes(std::string_view name, int64_t count, int n) const {
  ASSIGN_OR_RETURN(const GeneratorCall* call, checked(name, "packed bytes", count, n));
  return generate_bytes(call->seed.base, count);
}

Result<std::vector<uint8_t>> GeneratorCalls::e4m3(std::string_view name, int64_t count, int n) const {
  ASSIGN_OR_RETURN(const GeneratorCall* call, checked(name, "e4m3", count, n));
  return generate_e4m3(call->seed.base, count);
}

Result<std::vector<uint8_t>> GeneratorCalls::e8m0(std::string_view name, int64_t count, int n) const {
  ASSIGN_OR_RETURN(const GeneratorCall* call, checked(name, "e8m0", count, n));
  return generate_e8m0(call->seed.base, call->parameters[0], count);
}

Result<std::vector<Bf16>> GeneratorCalls::bf16(std::string_view name, int64_t count, int n) const {
  ASSIGN_OR_RETURN(const GeneratorCall* call, checked(name, "bf16", count, n));
  auto values = generate_bf16(call->seed.base, call->parameters[0], count);
  return call->absolute ? absolute(std::move(values)) : values;
}

Result<std::vector<float>> GeneratorCalls::f32(std::string_view name, int64_t count, int n) const {
  ASSIGN_OR_RETURN(const GeneratorCall* call, checked(name, "f32", count, n));
  return generate_f32(call->seed.base, call->parameters[0], count);
}

}  // namespace deepinfer::golden
