#include "api/images.h"

#include <algorithm>

namespace deepinfer {
namespace {

constexpr size_t kMaxLinkBytes = 8192;

bool is_link(std::string_view source) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    const bool same = source.size() >= scheme.size() &&
                      std::equal(scheme.begin(), scheme.end(), source.begin(), [](char expected, char found) {
                        return expected == (found >= 'A' && found <= 'Z' ? found | 0x20 : found);
                      });
    if (same) return true;
  }
  return false;
}

}  // namespace

bool is_image_type(std::string_view media_type) {
  constexpr std::string_view kTypes[] = {"image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"};
  return std::find(std::begin(kTypes), std::end(kTypes), media_type) != std::end(kTypes);
}

bool is_base64(std::string_view text) {
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  if (text.size() % 4 != 0) return false;
  text.remove_suffix(padding);
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '/';
  });
}

Status check_image_source(std::string_view source, std::string_view place, std::string_view name) {
  if (is_link(source)) {
    if (source.size() <= kMaxLinkBytes) return {};
    return Error(Code::kInvalidArgument,
                 "{}: {}external link length {} too long, max link length {}. Consider passing file data "
                 "directly with base64 data url instead.",
                 place, name, source.size(), kMaxLinkBytes);
  }
  constexpr std::string_view kScheme = "data:", kEncoding = ";base64,";
  const size_t encoding = source.find(kEncoding);
  if (!source.starts_with(kScheme) || encoding == std::string_view::npos) {
    return Error(Code::kInvalidArgument, "{}: Unsupported image_url format", place);
  }
  if (!is_base64(source.substr(encoding + kEncoding.size()))) {
    return Error(Code::kInvalidArgument, "{}: Invalid base64 data", place);
  }
  if (!is_image_type(source.substr(kScheme.size(), encoding - kScheme.size()))) {
    return Error(Code::kInvalidArgument,
                 "{}: You have uploaded an unsupported image. Please make sure your image is valid and has "
                 "one of the following formats: webp, png, jpeg, and gif.",
                 place);
  }
  return {};
}

Result<Image::Detail> parse_image_detail(const JsonRef& field) {
  ASSIGN_OR_RETURN(const std::string name, string_or(field, "high"));
  constexpr std::string_view kNames[] = {"low", "high", "original", "auto"};  // in the order of Detail
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found != std::end(kNames)) return static_cast<Image::Detail>(found - std::begin(kNames));
  return Error(
      Code::kInvalidArgument,
      "invalid request body: {}: unknown variant `{}`, expected one of `low`, `high`, `original`, `auto`",
      field.path(), name);
}

}  // namespace deepinfer
