#include "verify/verify.h"

#include <algorithm>
#include <filesystem>

#include "json/json.h"
#include "verify/op_checks.h"
#include "verify/recorder.h"
#include "verify/tiny_checks.h"

namespace deepinfer {
namespace {

std::string_view outcome_name(VerifyCheck::Outcome outcome) {
  switch (outcome) {
    case VerifyCheck::Outcome::kPassed:
      return "ok";
    case VerifyCheck::Outcome::kFailed:
      return "FAIL";
    case VerifyCheck::Outcome::kSkipped:
      return "skipped";
  }
  return "";
}

}  // namespace

int64_t VerifyReport::count(VerifyCheck::Outcome outcome) const {
  return std::count_if(checks.begin(), checks.end(),
                       [&](const VerifyCheck& check) { return check.outcome == outcome; });
}

Result<VerifyReport> verify_golden(const VerifyOptions& options,
                                   const std::function<void(const VerifyCheck&)>& on_check) {
  const bool has_ops = std::filesystem::exists(options.golden_directory + "/ops/manifest.json");
  const bool has_tiny = golden::has_prompts(options.golden_directory);
  if (!has_ops && !has_tiny) {
    return Error(Code::kNotFound,
                 "{}: no golden data: found neither ops/manifest.json nor tiny/prompts/*.safetensors",
                 options.golden_directory);
  }
  if (options.threads < 1) {
    return Error(Code::kInvalidArgument, "threads: found {}, expected at least 1", options.threads);
  }
  VerifyReport report;
  ASSIGN_OR_RETURN(const Ops* ops, select_ops(options.isa));
  report.isa = ops->name;
  report.summation_order = summation_order(options.numerics);
  golden::Recorder recorder(report, on_check);
  if (has_tiny) RETURN_IF_ERROR(golden::check_tiny(options, recorder));
  if (has_ops) {
    ASSIGN_OR_RETURN(const auto bench, golden::Bench::make(options.isa, options.threads));
    RETURN_IF_ERROR(golden::check_ops(options.golden_directory, options.model_directory, *bench, recorder));
  }
  return report;
}

std::string verify_line(const VerifyCheck& check) {
  const std::string_view outcome = outcome_name(check.outcome);
  if (check.measure.empty()) return fmt::format("{:<36} {:>47} {}", check.name, outcome, check.note);
  return fmt::format("{:<36} {:>15} {:>12.4g} <= {:<9.4g} {:>4} {}", check.name, check.measure, check.error,
                     check.allowed, outcome, check.note);
}

std::string verify_summary(const VerifyReport& report) {
  using enum VerifyCheck::Outcome;
  std::string text = fmt::format("{} checks passed, {} failed, {} skipped", report.count(kPassed),
                                 report.count(kFailed), report.count(kSkipped));
  if (report.top1_rows > 0) {
    text +=
        fmt::format("; top-1 agreement of logits {} of {} ({:.1f} %)", report.top1_equal, report.top1_rows,
                    100.0 * static_cast<double>(report.top1_equal) / static_cast<double>(report.top1_rows));
  }
  text += fmt::format("; table {}, order {}", report.isa, report.summation_order);
  return text;
}

std::string verify_json(const VerifyReport& report) {
  using enum VerifyCheck::Outcome;
  std::string text;
  JsonWriter json(text);
  json.begin_object().member("passed", report.passed());
  json.member("isa", report.isa).member("summation_order", report.summation_order);
  json.key("counts").begin_object();
  json.member("passed", report.count(kPassed)).member("failed", report.count(kFailed));
  json.member("skipped", report.count(kSkipped)).end_object();
  json.key("top1")
      .begin_object()
      .member("equal", report.top1_equal)
      .member("rows", report.top1_rows)
      .end_object();
  json.key("checks").begin_array();
  for (const VerifyCheck& check : report.checks) {
    json.begin_object().member("name", check.name).member("outcome", outcome_name(check.outcome));
    if (!check.measure.empty()) {
      json.member("measure", check.measure).member("error", check.error).member("allowed", check.allowed);
    }
    if (!check.note.empty()) json.member("note", check.note);
    json.end_object();
  }
  json.end_array().end_object();
  return text;
}

}  // namespace deepinfer
