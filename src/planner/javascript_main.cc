// planner_javascript FILE: writes the module. Run by the build.
#include <cstdio>

#include "planner/planner.h"

int main(int argc, char** argv) {
  std::FILE* file = argc == 2 ? std::fopen(argv[1], "w") : nullptr;
  if (file == nullptr) return 1;
  const std::string text = deepinfer::planner::write_javascript();
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written ? 0 : 1;
}
