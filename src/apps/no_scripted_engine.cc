#include "apps/scripted_engine.h"

namespace deepinfer {

Result<std::unique_ptr<TokenSource>> open_scripted_engine(const std::string& path, const Tokenizer&) {
  return Error(Code::kUnimplemented,
               "--engine scripted:{}: only the test program deepinfer-scripted answers from a file", path);
}

}  // namespace deepinfer
