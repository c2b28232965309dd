#include "recipe/marker_scanner.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

namespace deepinfer {
namespace {

size_t common_prefix(std::string_view a, std::string_view b) {
  const size_t limit = std::min(a.size(), b.size());
  size_t n = 0;
  while (n < limit && a[n] == b[n]) ++n;
  return n;
}

}  // namespace

MarkerSet::MarkerSet(std::vector<Marker> markers) : markers_(std::move(markers)) {
  for (const Marker& marker : markers_) {
    by_first_byte_.push_back(&marker);
    eats_newlines_ |= marker.eats_newlines;
  }
  const auto first_byte = [](const Marker* marker) { return static_cast<unsigned char>(marker->text[0]); };
  std::stable_sort(by_first_byte_.begin(), by_first_byte_.end(),
                   [&](const Marker* a, const Marker* b) { return first_byte(a) < first_byte(b); });
  for (size_t i = 0; i < by_first_byte_.size(); ++i) {
    Group& group = groups_[first_byte(by_first_byte_[i])];
    if (group.size++ == 0) group.begin = static_cast<uint16_t>(i);
    of_interest_[first_byte(by_first_byte_[i])] = true;
  }
  of_interest_[static_cast<unsigned char>('\n')] |= eats_newlines_;
}

MarkerScanner::Found MarkerScanner::next(const MarkerSet& set, bool at_start) {
  const std::string_view text = text_;
  const Marker* best = nullptr;
  size_t best_begin = 0, best_end = std::string_view::npos;
  std::optional<std::pair<size_t, size_t>>
      unfinished;  // where a marker may have begun, and the newlines before it
  size_t newlines = newlines_;
  for (size_t at = scan_; at < text.size() && at < best_end;) {
    if (const size_t plain = set.plain_prefix(text.substr(at)); plain > 0) {
      newlines = at += plain;
      continue;
    }
    for (const Marker* marker : set.beginning_with(text[at])) {
      if (marker->only_at_start && !(at_start && at == begin_)) continue;
      const size_t end = at + common_prefix(text.substr(at), marker->text);
      if (end - at == marker->text.size()) {
        if (end > best_end || (end == best_end && best <= marker)) continue;
        best = marker, best_begin = marker->eats_newlines ? newlines : at, best_end = end;
      } else if (end == text.size() && !unfinished) {
        unfinished = {at, newlines};
      }
    }
    if (text[at++] != '\n') newlines = at;
  }
  const size_t begin = begin_;
  if (best != nullptr) {
    consume(best_end);
    return {text.substr(begin, best_begin - begin), best, text.substr(best_begin, best_end - best_begin)};
  }
  std::tie(scan_, newlines_) = unfinished.value_or(std::pair(text.size(), newlines));
  begin_ = set.eats_newlines() ? newlines_ : scan_;
  return {text.substr(begin, begin_ - begin), nullptr, {}};
}

void MarkerScanner::compact() {
  if (begin_ == 0) return;
  text_.erase(0, begin_);
  scan_ -= begin_;
  newlines_ -= begin_;
  begin_ = 0;
}

}  // namespace deepinfer
