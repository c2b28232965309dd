// Finds the first of several markers in a text that arrives in pieces. Private to the room.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

struct Marker {
  std::string text;            // not empty
  int action = 0;              // the caller's meaning
  bool eats_newlines = false;  // LF characters directly before it belong to it
  bool only_at_start = false;  // matches only as the first unread text
};

// Markers in order of priority, and the bytes they begin with. Immutable, thread-safe.
class MarkerSet {
 public:
  explicit MarkerSet(std::vector<Marker> markers);
  MarkerSet(const MarkerSet&) = delete;  // holds pointers into itself
  // The markers that begin with that byte, in order of priority.
  std::span<const Marker* const> beginning_with(char byte) const {
    const auto& group = groups_[static_cast<unsigned char>(byte)];
    return std::span(by_first_byte_).subspan(group.begin, group.size);
  }
  bool eats_newlines() const { return eats_newlines_; }
  // How many bytes at the front of `text` concern no marker at all.
  size_t plain_prefix(std::string_view text) const {
    size_t n = 0;
    while (n < text.size() && !of_interest_[static_cast<unsigned char>(text[n])]) ++n;
    return n;
  }

 private:
  struct Group {
    uint16_t begin = 0, size = 0;
  };
  std::vector<Marker> markers_;
  std::vector<const Marker*> by_first_byte_;
  std::array<Group, 256> groups_{};
  std::array<bool, 256> of_interest_{};  // first bytes, and LF where a marker eats it
  bool eats_newlines_ = false;
};

// Holds unread text. The marker that completes first wins, the earlier in the set when two complete together,
// so what is found does not depend on how the text was cut. Each byte is looked at once, plus once for each
// marker that it may still belong to.
class MarkerScanner {
 public:
  void append(std::string_view piece) { text_ += piece; }
  bool empty() const { return begin_ == text_.size(); }

  struct Found {
    std::string_view before;   // text in front of the marker, without the newlines it eats
    const Marker* marker;      // nullptr: none completed
    std::string_view matched;  // the marker with the newlines it eats
  };
  // Consumes up to the end of the first marker. Without one, consumes and returns what can't belong to any;
  // the rest stays. `at_start`: nothing was read since this set came into force. The view is valid until the
  // next call.
  Found next(const MarkerSet& set, bool at_start);

  // Makes the text from `place` on unread again, which points into the view that next() returned.
  void rewind_to(const char* place) { consume(static_cast<size_t>(place - text_.data())); }
  void skip(size_t size) { consume(begin_ + size); }

  // Everything unread.
  std::string_view rest() const { return std::string_view(text_).substr(begin_); }
  // The part of rest() that a marker may begin with, without the newlines before it.
  std::string_view unfinished() const { return std::string_view(text_).substr(scan_); }
  void compact();  // gives consumed bytes back; views become invalid

 private:
  void consume(size_t end) { begin_ = scan_ = newlines_ = end; }

  std::string text_;
  size_t begin_ = 0;     // first unread byte
  size_t scan_ = 0;      // first byte at which a marker may still begin
  size_t newlines_ = 0;  // start of the run of LF that ends at scan_
};

}  // namespace deepinfer
