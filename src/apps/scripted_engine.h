// An engine whose answers stand in a file, behind the interface of the real one: for tests of clients whose
// prompts the small model can't follow. Only the program deepinfer-scripted has it; in deepinfer the call
// says so.
#pragma once

#include <memory>
#include <string>

#include "gateway/token_source.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// FILE holds one JSON object a line:
//   {"reply": "text with <think> and markup as the model would write it",
//    "match": "text that the prompt must hold",  absent: any prompt
//    "repeat": true,                             may answer more than once; absent: false
//    "finish": "stop" or "length",               absent: "stop"
//    "delay_ms": 5}                              before each token; absent: 0
// A request takes the first line that fits and was not used up. kUnimplemented: this program has no such
// engine. kInvalidArgument names the line and what is wrong with it. Borrows the tokenizer.
Result<std::unique_ptr<TokenSource>> open_scripted_engine(const std::string& path,
                                                          const Tokenizer& tokenizer);

}  // namespace deepinfer
