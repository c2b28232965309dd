// The commands `deepinfer tokenize` and `detokenize` as their user sees them: lines and exit codes of the
// real program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tokenizer/small_tokenizer.h"

namespace deepinfer {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Output {
  std::string text;
  int exit_code = -1;
};

class TokenizeCommandTest : public testing::Test {
 protected:
  TokenizeCommandTest() {
    std::filesystem::create_directories(directory_);
    write("tokenizer.json", SmallTokenizer().json());
  }
  ~TokenizeCommandTest() override { std::filesystem::remove_all(directory_); }

  void write(const std::string& name, std::string_view text) {
    std::ofstream(directory_ + "/" + name) << text;
  }

  Output run(const std::string& arguments, std::string_view input) {
    write("input.jsonl", input);
    const std::string command = DEEPINFER_PROGRAM " " + arguments + " 2>&1 < " + directory_ + "/input.jsonl";
    Output output;
    std::FILE* pipe = ::popen(command.c_str(), "r");
    char buffer[4096];
    for (size_t count = 0; (count = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
      output.text.append(buffer, count);
    output.exit_code = WEXITSTATUS(::pclose(pipe));
    return output;
  }

  const std::string directory_ = testing::TempDir() + "tokenize_command_test";
  const std::string model_ = " --model " + directory_;
};

TEST_F(TokenizeCommandTest, EachLineOfTextIsAnsweredWithIds) {
  const Output output =
      run("tokenize" + model_, "{\"text\": \"hello\"}\n{\"text\": \"a<s>\"}\n{\"text\": \"\"}\n");
  EXPECT_EQ(output.text, "{\"ids\":[259]}\n{\"ids\":[97,266]}\n{\"ids\":[]}\n");
  EXPECT_EQ(output.exit_code, 0);
}

TEST_F(TokenizeCommandTest, AddedTokensCanBeTakenAsText) {
  const Output output = run("tokenize --no-added-tokens --tokenizer " + directory_ + "/tokenizer.json",
                            "{\"text\": \"<s>\"}\n");
  EXPECT_EQ(output.text, "{\"ids\":[60,115,62]}\n");
}

TEST_F(TokenizeCommandTest, ABadLineIsAnsweredWithAnErrorAndTheRestGoesOn) {
  const Output output = run("tokenize" + model_, "{\"text\": 5}\nnonsense\n{\"text\": \"a\"}\n");
  EXPECT_THAT(output.text, StartsWith("{\"error\":\"line 1: text: found integer, expected string\"}\n"
                                      "{\"error\":\"line 2: "));
  EXPECT_THAT(output.text, HasSubstr("\n{\"ids\":[97]}\n"));
  EXPECT_EQ(output.exit_code, 1);
}

TEST_F(TokenizeCommandTest, EachLineOfIdsIsAnsweredWithText) {
  const Output output =
      run("detokenize" + model_, "{\"ids\": [259, 266]}\n{\"ids\": [195]}\n{\"ids\": [-1]}\n");
  EXPECT_EQ(output.text,
            "{\"text\":\"hello<s>\"}\n{\"text\":\"\xEF\xBF\xBD\"}\n"
            "{\"error\":\"line 3: ids[0]: found -1, expected 0 to 269\"}\n");
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_EQ(run("detokenize --skip-special" + model_, "{\"ids\": [259, 266]}\n").text,
            "{\"text\":\"hello\"}\n");
}

TEST_F(TokenizeCommandTest, AMissingTokenizerIsNamed) {
  const Output output = run("tokenize --model /no/such/directory", "");
  EXPECT_THAT(output.text, HasSubstr("/no/such/directory/tokenizer.json: can't open: No such file"));
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_EQ(run("tokenize", "").exit_code, 2);
}

}  // namespace
}  // namespace deepinfer
