// The engine as a library: two prompts answered at once, tokens printed as they come.
//   build/release/examples/generate models/mini
#include <cstdio>
#include <future>

#include "checkpoint/checkpoint.h"
#include "deepinfer/engine.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace {

int run(const std::string& directory) {
  using namespace deepinfer;
  const auto fail = [](const Error& error) { return std::fprintf(stderr, "%s\n", error.message().c_str()), 1; };
  const auto checkpoint = Checkpoint::open(directory);
  if (!checkpoint.ok()) return fail(checkpoint.error());
  const auto tokenizer = Tokenizer::load(directory + "/tokenizer.json");
  if (!tokenizer.ok()) return fail(tokenizer.error());
  auto model = Model::load(*checkpoint, engram_token_map(*tokenizer, checkpoint->config().vocab_size),
                           {.max_context_tokens = 1024, .max_sequences = 4});
  if (!model.ok()) return fail(model.error());

  Counters counters;
  Engine engine(std::move(*model), {}, counters);
  std::promise<void> done[2];
  const char* prompts[] = {"The capital of France is", "Seven plus four makes"};
  for (int i = 0; i < 2; ++i) {
    EngineRequest request;
    request.prompt_ids = tokenizer->encode(prompts[i]);
    request.max_tokens = 20;
    request.sampling.temperature = 0;
    const auto id = engine.submit(request, [&, i](const EngineEvent& event) {
      if (event.kind == EngineEvent::Kind::kToken) std::printf("%d: %d\n", i, event.token_id);
      if (event.kind == EngineEvent::Kind::kFinished) done[i].set_value();
    });
    if (!id.ok()) return fail(id.error());
  }
  for (auto& end : done) end.get_future().wait();
  std::printf("%s", describe(engine.stats()).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run(argc > 1 ? argv[1] : "models/mini"); }
