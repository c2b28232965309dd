// Finds where a JSON object or array ends in text that comes in pieces. Private to the room.
#pragma once

#include <string_view>

namespace deepinfer {

class JsonExtent {
 public:
  void reset() { *this = JsonExtent(); }
  // How many bytes of `text` belong to the value; less than all of them when it ended there.
  size_t read(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (step(text[i])) return i + 1;
    }
    return text.size();
  }
  bool ended() const { return ended_; }

 private:
  // Whether the value ends with this byte.
  bool step(char c) {
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
      return false;
    }
    if (c == '"') in_string_ = true;
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') ended_ = --depth_ == 0;
    return ended_;
  }

  long depth_ = 0;
  bool in_string_ = false, escaped_ = false, ended_ = false;
};

}  // namespace deepinfer
