#include "api/token_attribution.h"

#include <algorithm>

namespace deepinfer {
namespace {

// Where in `text` a part starts that is a beginning of `piece`, or that `piece` is a beginning of; npos for
// nowhere.
size_t match_start(std::string_view text, std::string_view piece) {
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    const size_t length = std::min(rest.size(), piece.size());
    if (rest.substr(0, length) == piece.substr(0, length)) return at;
  }
  return std::string_view::npos;
}

}  // namespace

std::vector<ScoredToken> TokenAttribution::take(std::string_view piece) {
  std::vector<ScoredToken> out;
  std::vector<ScoredToken> incomplete;  // tokens without text belong to the next one with some
  while (!piece.empty() && !waiting_.empty()) {
    Waiting& front = waiting_.front();
    if (front.text.empty()) {
      if (!front.is_told) incomplete.push_back(std::move(front.token));
      waiting_.pop_front();
      continue;
    }
    const size_t at = match_start(front.text, piece);
    if (at == std::string_view::npos) {  // markup
      incomplete.clear();
      waiting_.pop_front();
      continue;
    }
    std::move(incomplete.begin(), incomplete.end(), std::back_inserter(out));
    incomplete.clear();
    if (!front.is_told) out.push_back(front.token);
    front.is_told = true;
    const size_t length = std::min(front.text.size() - at, piece.size());
    piece.remove_prefix(length);
    front.text.erase(0, at + length);
    if (front.text.empty()) waiting_.pop_front();
  }
  return out;
}

}  // namespace deepinfer
