// The worker of the tests. By its first words a grammar is compiled for ever, ends the process or takes all memory.
#include <unistd.h>

#include <csignal>

#include "grammar/grammar.h"

int main() {
  return deepinfer::run_grammar_worker([](const deepinfer::GrammarSpec& spec) {
    while (spec.text.starts_with("# hold")) ::pause();
    if (spec.text.starts_with("# crash")) std::raise(SIGSEGV);
    std::vector<std::unique_ptr<char[]>> eaten;
    while (spec.text.starts_with("# eat")) eaten.emplace_back(new char[16 << 20]);
  });
}
