// No allocation for a piece of output once the parser's buffers have grown. Replaces operator new for this
// program.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "recipe/output_test_support.h"

namespace {
thread_local size_t allocations = 0;
}  // namespace

// Not inlined: the compiler would see free() on memory of new, which is what is meant here.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace deepinfer {
namespace {

// Pushes `unit` cut into pieces of four bytes, again and again.
size_t allocations_after_warm_up(OutputOptions options, const std::string& opening, const std::string& unit) {
  OutputParser parser(std::move(options));
  size_t bytes = 0;
  const OutputSink sink = [&bytes](const OutputEvent& event) { bytes += event.text.size(); };
  parser.push(opening, sink);
  const auto push_all = [&] {
    for (size_t at = 0; at < unit.size(); at += 4) {
      parser.push(std::string_view(unit).substr(at, 4), sink);
    }
  };
  for (int i = 0; i < 3; ++i) push_all();
  const size_t before = allocations;
  for (int i = 0; i < 100; ++i) push_all();
  EXPECT_GT(bytes, 100 * unit.size() / 2);
  return allocations - before;
}

const std::string kText =
    "Some words, a < b and <b>bold</b>, a line\n\nand </thin <｜D more of it 日本 \n```\n";

TEST(OutputAllocation, TextAndReasoningAllocateNothing) {
  OutputOptions options;
  options.parse_tool_calls = true;
  options.stop_sequences = {"END OF IT", "\n\n\n\n"};
  options.tools = {{"f", {{"a", true}}}};
  EXPECT_EQ(allocations_after_warm_up(options, "", kText), 0u);
  options.start = OutputStage::kReasoning;
  EXPECT_EQ(allocations_after_warm_up(options, "", kText), 0u);
}

TEST(OutputAllocation, AStringArgumentAllocatesNothing) {
  OutputOptions options;
  options.parse_tool_calls = true;
  const std::string opening =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">";
  EXPECT_EQ(allocations_after_warm_up(options, opening, kText), 0u);
}

TEST(OutputAllocation, JsonAllocatesNothing) {
  OutputOptions options;
  options.json_output = true;
  EXPECT_EQ(allocations_after_warm_up(options, "[", "{\"a\": \"some }text\", \"b\": [1, 2]}, "), 0u);
}

}  // namespace
}  // namespace deepinfer
