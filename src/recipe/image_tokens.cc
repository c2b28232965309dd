// How many tokens an image takes (docs/spec/recipe.md 3.6): patches of 14 pixels, 3 x 3 of them a
// token, one token at the end of each row, one before and one after the image.
#include <cmath>
#include <utility>

#include "recipe/recipe.h"

namespace deepinfer {
namespace {

constexpr double kPatch = 14, kCell = 42;  // a cell is one token
constexpr int64_t kBudget = 1024;
constexpr double kSmallestArea = 544.0 * 544.0;
constexpr int kMostRounds = 10;

struct Size {
  double width, height;
  bool operator==(const Size&) const = default;
};

double up_to_patch(double side) {
  return std::ceil(side / kPatch) * kPatch;
}
double down_to_patch(double side) {
  return std::floor(side / kPatch) * kPatch;
}

int64_t tokens_of(const Size& size) {
  const auto rows = static_cast<int64_t>(std::ceil(size.height / kCell));
  const auto columns = static_cast<int64_t>(std::ceil(size.width / kCell));
  return rows * (columns + 1) + 2;
}

// The largest size of that shape whose cells fit the budget.
Size shrunk(const Size& size) {
  const double ratio = size.height / size.width;
  const double columns = std::sqrt((kBudget - 2) / ratio + 0.25) - 0.5;
  const double rows = columns * ratio;
  if (columns < 1) return {kCell, std::floor((kBudget - 2) / 2.0) * kCell};
  if (rows < 1) return {(kBudget - 3) * kCell, kCell};
  const double scale =
      std::min(std::floor(columns) * kCell / size.width, std::floor(rows) * kCell / size.height);
  return {down_to_patch(size.width * scale), down_to_patch(size.height * scale)};
}

Size one_round(Size size) {
  const double area = size.width * size.height;
  if (area > 0 && area < kSmallestArea) {
    const double scale = std::sqrt(kSmallestArea / area);
    size = {std::trunc(size.width * scale), std::trunc(size.height * scale)};
  }
  const Size rounded = {up_to_patch(size.width), up_to_patch(size.height)};
  return tokens_of(rounded) > kBudget ? shrunk(size) : rounded;
}

}  // namespace

int64_t image_token_count(int64_t width, int64_t height) {
  Size size = {static_cast<double>(width), static_cast<double>(height)};
  for (int round = 0; round < kMostRounds; ++round) {
    const Size before = std::exchange(size, one_round(size));
    if (size == before) break;
  }
  return tokens_of(size);
}

}  // namespace deepinfer
