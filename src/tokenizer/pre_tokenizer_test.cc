#include "tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace deepinfer {
namespace {

using testing::ElementsAre;

std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  PreTokenizer scanner(text);
  for (auto piece = scanner.next(); !piece.empty(); piece = scanner.next()) pieces.emplace_back(piece);
  return pieces;
}

TEST(PreTokenizerTest, EmptyTextHasNoPieces) {
  EXPECT_THAT(pieces_of(""), ElementsAre());
}

TEST(PreTokenizerTest, WordsKeepTheSpaceInFrontOfThem) {
  EXPECT_THAT(pieces_of("Hello big world"), ElementsAre("Hello", " big", " world"));
}

TEST(PreTokenizerTest, NumbersAreCutFromTheLeftIntoGroupsOfThree) {
  EXPECT_THAT(pieces_of("x1234567 8"), ElementsAre("x", "123", "456", "7", " ", "8"));
  EXPECT_THAT(pieces_of("٢٠٢٤½"), ElementsAre("٢٠٢", "٤½"));
}

TEST(PreTokenizerTest, ASpaceInFrontOfANumberStandsAlone) {
  EXPECT_THAT(pieces_of("a  12"), ElementsAre("a", "  ", "12"));
}

TEST(PreTokenizerTest, PunctuationTakesTheAsciiLettersAfterIt) {
  EXPECT_THAT(pieces_of("a.bc(d)"), ElementsAre("a", ".bc", "(d", ")"));
  EXPECT_THAT(pieces_of("don't"), ElementsAre("don", "'t"));
  EXPECT_THAT(pieces_of("'été"), ElementsAre("'", "été"));
  EXPECT_THAT(pieces_of("'eté"), ElementsAre("'et", "é"));
}

TEST(PreTokenizerTest, PunctuationRunsTakeASpaceBeforeAndNewlinesAfter) {
  EXPECT_THAT(pieces_of("x ++;\r\n\ny"), ElementsAre("x", " ++;\r\n\n", "y"));
  EXPECT_THAT(pieces_of("x\t++"), ElementsAre("x", "\t", "++"));
}

TEST(PreTokenizerTest, MarksBelongToTheWord) {
  EXPECT_THAT(pieces_of("e\u0301a\u0301 \u0301"), ElementsAre("e\u0301a\u0301", " \u0301"));
}

TEST(PreTokenizerTest, CjkRunsAreTheirOwnPieces) {
  EXPECT_THAT(pieces_of("ab的人c，大"), ElementsAre("ab", "的人", "c", "，", "大"));
  EXPECT_THAT(pieces_of(" 的"), ElementsAre(" ", "的"));
}

TEST(PreTokenizerTest, TheKatakanaMiddleDotSplitsItsRunAgain) {
  EXPECT_THAT(pieces_of("カナ・カナ"), ElementsAre("カナ", "・", "カナ"));
}

TEST(PreTokenizerTest, HanOutsideTheOldRangeCountsAsLetters) {
  EXPECT_THAT(pieces_of("\U00020000a\u9FA6的"), ElementsAre("\U00020000a\u9FA6", "的"));
}

TEST(PreTokenizerTest, WhiteSpaceEndsAtItsLastNewline) {
  EXPECT_THAT(pieces_of("a \n \r\n  b"), ElementsAre("a", " \n \r\n", " ", " b"));
}

TEST(PreTokenizerTest, WhiteSpaceLeavesTheLastSpaceToTheWord) {
  EXPECT_THAT(pieces_of("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(pieces_of("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(pieces_of("a \u3000\u0085b"), ElementsAre("a", " \u3000", "\u0085b"));
}

TEST(PreTokenizerTest, WhatNoAlternativeMatchesIsAPieceOfItsOwn) {
  EXPECT_THAT(pieces_of(std::string_view("\x00\x01\x02z", 4)),
              ElementsAre(std::string("\x00\x01", 2), "\x02z"));
  EXPECT_THAT(pieces_of("\u200b\u200b1"), ElementsAre("\u200b\u200b", "1"));
}

}  // namespace
}  // namespace deepinfer
