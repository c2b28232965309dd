// What a reader reads, for tests.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace deepinfer {

// While it lives, it notes the path of every member that this thread looks for through a JsonRef, indices as "[]":
// "messages[].content[].type".
class JsonLookups {
 public:
  JsonLookups();
  ~JsonLookups();
  JsonLookups(const JsonLookups&) = delete;
  const std::set<std::string>& paths() const { return paths_; }
  void note(std::string_view path);

 private:
  std::set<std::string> paths_;
  JsonLookups* const outer_;
};

}  // namespace deepinfer
