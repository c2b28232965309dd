// Programs: what a layer's ops are, in which order (docs/model.md says so aloud), and what waits for what.
#include "model/program.h"

#include <gtest/gtest.h>

#include <fstream>
#include <type_traits>

#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "source_path.h"

namespace deepinfer {
namespace {

// Data, and nothing else: it could be copied to another machine.
static_assert(std::is_trivially_copyable_v<Op>);

TEST(ProgramTest, NeedsAreOpsOfThisRunOrHaveEnded) {
  Program program;
  const Program::Phase first = program.add(SetAngles{}, {});
  const Program::Phase second = program.add(ListWindow{}, {first, Program::kNone});
  ASSERT_EQ(program.entries().size(), 2u);
  ASSERT_EQ(program.entries()[1].num_needs, 1);  // kNone is no need
  EXPECT_EQ(program.entries()[1].all_needs()[0].op, 0);
  program.clear();
  EXPECT_TRUE(program.entries().empty());
  const Program::Phase third = program.add(ListWindow{}, {second});  // has ended
  program.add(ListWindow{}, {third});
  EXPECT_EQ(program.entries()[0].num_needs, 0);
  ASSERT_EQ(program.entries()[1].num_needs, 1);
  EXPECT_EQ(program.entries()[1].all_needs()[0].op, 0);
}

TEST(ProgramTest, AnOpThatWaitsForALaterOneIsABugThatIsCaught) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Program program;
  EXPECT_DEATH(program.add(SetAngles{}, {Program::Phase{0}}), "");
}

class OpTrace final : public ForwardObserver {
 public:
  std::vector<std::vector<std::string>> programs;
  bool wants(std::string_view name) const override { return name == "ops"; }
  void ops(std::span<const std::string_view> names) override { programs.emplace_back(names.begin(), names.end()); }
};

// The ops of the table of docs/model.md, in its order.
std::vector<std::string> ops_of_the_page() {
  std::ifstream page(source_path("docs/model.md"));
  std::vector<std::string> ops;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| ") || line[2] < '0' || line[2] > '9') continue;
    const size_t cell = line.find('|', 1), end = line.find('|', cell + 1);
    if (line.find("ratio 2 alone") < end) continue;             // not of this layer
    for (size_t at = cell; (at = line.find('`', at)) < end;) {  // capitals are ops, the others weights
      const size_t close = line.find('`', at + 1);
      const std::string word = line.substr(at + 1, close - at - 1);
      if (word[0] >= 'A' && word[0] <= 'Z') ops.push_back(word);
      at = close + 1;
    }
  }
  return ops;
}

TEST(ProgramTest, TheLayerOfThePageIsTheLayerThatRuns) {
  const auto checkpoint = Checkpoint::open(source_path("models/mini"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  const ModelConfig& config = checkpoint->config();
  std::vector<int32_t> map(static_cast<size_t>(config.vocab_size));
  for (size_t id = 0; id < map.size(); ++id) {
    map[id] =
        static_cast<int32_t>(std::min<int64_t>(static_cast<int64_t>(id), config.engram_compressed_vocab_size - 1));
  }
  const auto model = Model::load(*checkpoint, map, {.max_context_tokens = 128});
  ASSERT_TRUE(model.ok()) << model.error().message();
  auto sequence = (*model)->make_sequence();
  ASSERT_TRUE(sequence.ok());
  const std::vector<int32_t> ids = {5, 6, 7};
  const SequenceSpan span{sequence->get(), 0, ids, LogitsRows::kLast};
  OpTrace trace;
  ASSERT_TRUE((*model)->forward({&span, 1}, &trace).ok());

  // The candidate source is the first decoder layer: its program ends behind the compressor and goes on in another.
  ASSERT_EQ(config.candidate_source_layer_id, config.first_decoder_layer());
  const std::vector<std::string> page = ops_of_the_page();
  ASSERT_GT(page.size(), 20u);
  bool found = false;
  for (size_t i = 0; i + 1 < trace.programs.size(); ++i) {
    std::vector<std::string> both = trace.programs[i];
    both.insert(both.end(), trace.programs[i + 1].begin(), trace.programs[i + 1].end());
    found = found || both == page;
  }
  std::string all;
  for (const auto& program : trace.programs) all += testing::PrintToString(program) + "\n";
  EXPECT_TRUE(found) << "the page says " << testing::PrintToString(page) << ", ran\n" << all;
}

}  // namespace
}  // namespace deepinfer
