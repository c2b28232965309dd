// Collects the checks of a run. Owned by the one thread that verifies.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "verify/verify.h"

namespace deepinfer::golden {

class Recorder {
 public:
  // Borrowed: the report and the callback outlive the recorder.
  Recorder(VerifyReport& report, const std::function<void(const VerifyCheck&)>& on_check)
      : report_(report), on_check_(on_check) {}

  // Passes when error <= allowed; NaN fails.
  void compare(std::string name, std::string_view measure, double error, double allowed,
               std::string note = "") {
    using enum VerifyCheck::Outcome;
    add({std::move(name), error <= allowed ? kPassed : kFailed, std::string(measure), error, allowed,
         std::move(note)});
  }
  void fail(std::string name, std::string why) {
    add({std::move(name), VerifyCheck::Outcome::kFailed, "", 0, 0, std::move(why)});
  }
  void skip(std::string name, std::string why) {
    add({std::move(name), VerifyCheck::Outcome::kSkipped, "", 0, 0, std::move(why)});
  }
  size_t num_checks() const { return report_.checks.size(); }
  void count_top1(int64_t equal, int64_t rows) {
    report_.top1_equal += equal;
    report_.top1_rows += rows;
  }

 private:
  void add(VerifyCheck check) {
    report_.checks.push_back(std::move(check));
    if (on_check_) on_check_(report_.checks.back());
  }

  VerifyReport& report_;
  const std::function<void(const VerifyCheck&)>& on_check_;
};

}  // namespace deepinfer::golden
