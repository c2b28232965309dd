#include "planner/trace.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>

namespace deepinfer::planner {
namespace {

constexpr char kJson[] = R"({"timestamp": 1000, "input_length": 1000, "output_length": 10, "hash_ids": [1, 2]}
{"timestamp": 3000, "input_length": 1100, "output_length": 30, "hash_ids": [1, 2, 3]}
{"timestamp": 2000, "input_length": 600, "output_length": 20, "hash_ids": [1, 9]}
)";

TEST(Trace, JsonLinesAreReadInOrderOfArrival) {
  const auto trace = parse_trace(kJson, "t");
  ASSERT_TRUE(trace.ok()) << trace.error().message();
  ASSERT_EQ(trace->requests.size(), 3u);
  EXPECT_EQ(trace->requests[1].input, 600);
  EXPECT_EQ(trace->requests[2].arrival_s, 2);
  EXPECT_EQ(trace->requests[2].blocks, (std::vector<int64_t>{1, 2, 3}));
  const TraceSummary summary = summarize(*trace);
  EXPECT_EQ(summary.requests_per_s, 1.5);
  EXPECT_EQ(summary.mean_input, 900);
  EXPECT_EQ(summary.mean_output, 20);
  EXPECT_TRUE(summary.has_prefixes);
  EXPECT_DOUBLE_EQ(summary.best_hit, (512 + 1024) / 2700.0);
}

TEST(Trace, CsvTimesCrossMidnightAndMonths) {
  const auto trace = parse_trace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-02-29 23:59:59.5000000,10,1\r\n2024-03-01 "
      "00:00:01.2500000,20,2\r\n",
      "t");
  ASSERT_TRUE(trace.ok()) << trace.error().message();
  EXPECT_DOUBLE_EQ(trace->requests[1].arrival_s, 1.75);
  EXPECT_EQ(trace->requests[1].input, 20);
  EXPECT_FALSE(summarize(*trace).has_prefixes);
}

TEST(Trace, ABadLineIsNamed) {
  const auto refused = [](const std::string& text) {
    const auto trace = parse_trace(text, "t.jsonl");
    EXPECT_FALSE(trace.ok()) << text;
    return trace.ok() ? "" : trace.error().message();
  };
  EXPECT_EQ(refused(std::string(kJson) + R"({"timestamp": 1, "input_length": -5, "output_length": 1})"),
            "t.jsonl line 4: input_length: found -5, expected 0 to 16777216 tokens");
  EXPECT_EQ(refused(R"({"timestamp": "x", "input_length": 5, "output_length": 1})"),
            "t.jsonl line 1: timestamp: found string, expected number");
  EXPECT_EQ(refused(R"({"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1, null]})"),
            "t.jsonl line 1: hash_ids[1]: found null, expected integer");
  EXPECT_EQ(refused("{\n").rfind("t.jsonl line 1: ", 0), 0u);
  EXPECT_EQ(refused(""), "t.jsonl: found no request, expected one a line");
  const std::string header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  EXPECT_EQ(refused(header + "2024-01-01 00:00:00,5\n"),
            "t.jsonl line 2: found 2 cells, expected TIMESTAMP,ContextTokens,GeneratedTokens");
  EXPECT_EQ(refused(header + "yesterday,5,5\n"),
            "t.jsonl line 2: TIMESTAMP: found 'yesterday', expected a time as 2023-11-16 18:17:03.97");
  EXPECT_EQ(refused(header + "2024-01-01 00:00:00,5,x\n"),
            "t.jsonl line 2: GeneratedTokens: found 'x', expected 0 to 16777216 tokens");
  for (const char* time : {"2024-13-01 00:00:00", "2024-01-01", "2024-01-01 00:00:", "2024-01-01 25:00:00", "",
                           "2024-01-01 00:00:00+02:00"})
    refused(header + time + ",5,5\n");
}

TEST(Trace, GzipAndPlainFilesAreTheSame) {
  const std::string folder = ::testing::TempDir();
  const std::string packed = folder + "/planner_trace.jsonl.gz";
  gzFile file = gzopen(packed.c_str(), "wb");
  ASSERT_EQ(gzwrite(file, kJson, sizeof(kJson) - 1), static_cast<int>(sizeof(kJson) - 1));
  gzclose(file);
  const auto trace = read_trace(packed);
  ASSERT_TRUE(trace.ok()) << trace.error().message();
  EXPECT_EQ(trace->requests.size(), 3u);
  std::filesystem::resize_file(packed, std::filesystem::file_size(packed) / 2);
  EXPECT_FALSE(read_trace(packed).ok());
  EXPECT_EQ(read_trace(folder + "/nothing.jsonl").error().code(), Code::kNotFound);
  EXPECT_FALSE(read_trace(folder).ok());
}

}  // namespace
}  // namespace deepinfer::planner
