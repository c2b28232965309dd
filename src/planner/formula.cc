#include "planner/formula.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace deepinfer::planner {
namespace {

// Of an infix operation; a leaf or a call binds tightest.
int precedence(Operation operation) {
  switch (operation) {
    case Operation::kAdd:
    case Operation::kSubtract:
      return 1;
    case Operation::kMultiply:
    case Operation::kDivide:
      return 2;
    case Operation::kPower:
    case Operation::kNumber:
    case Operation::kVariable:
    case Operation::kLarger:
    case Operation::kSmaller:
    case Operation::kCeiling:
      return 3;
  }
  return 3;
}

std::string_view sign(Operation operation, Notation notation) {
  const bool text = notation == Notation::kText;
  switch (operation) {
    case Operation::kAdd:
      return " + ";
    case Operation::kSubtract:
      return text ? " − " : " - ";
    case Operation::kMultiply:
      return text ? " × " : " * ";
    case Operation::kDivide:
      return " / ";
    case Operation::kLarger:
      return text ? "max" : "Math.max";
    case Operation::kSmaller:
      return text ? "min" : "Math.min";
    case Operation::kCeiling:
      return text ? "round up" : "Math.ceil";
    case Operation::kPower:
      return text ? "power" : "wholePower";
    case Operation::kNumber:
    case Operation::kVariable:
      return "";
  }
  return "";
}

}  // namespace

NodePtr make_node(Operation operation, NodePtr left, NodePtr right) {
  Node node{operation};
  node.left = std::move(left);
  node.right = std::move(right);
  return std::make_shared<const Node>(std::move(node));
}

double whole_power(double x, double n) {
  double result = 1;
  for (auto left = static_cast<uint32_t>(std::clamp(std::floor(n + 0.5), 0.0, 2147483647.0)); left > 0; left >>= 1) {
    if ((left & 1) != 0) result *= x;
    x *= x;
  }
  return result;
}

double compute(const Node& node, std::span<const double> values) {
  const double left = node.left ? compute(*node.left, values) : 0;
  const double right = node.right ? compute(*node.right, values) : 0;
  switch (node.operation) {
    case Operation::kNumber:
      return node.number;
    case Operation::kVariable:
      return values[static_cast<size_t>(node.variable)];
    case Operation::kAdd:
      return left + right;
    case Operation::kSubtract:
      return left - right;
    case Operation::kMultiply:
      return left * right;
    case Operation::kDivide:
      return left / right;
    case Operation::kLarger:
      return std::isnan(left) || std::isnan(right) ? NAN : std::max(left, right);
    case Operation::kSmaller:
      return std::isnan(left) || std::isnan(right) ? NAN : std::min(left, right);
    case Operation::kCeiling:
      return std::ceil(left);
    case Operation::kPower:
      return whole_power(left, right);
  }
  return NAN;
}

std::string write(const Node& node, Notation notation, const std::function<std::string(const Node&)>& leaf) {
  const int level = precedence(node.operation);
  // What binds less, or as much on the right of an operation, stands in parentheses: the order of evaluation is the
  // tree's.
  const auto part = [&](const Node& child, bool is_right) {
    std::string text = write(child, notation, leaf);
    const int inner = precedence(child.operation);
    return inner < level || (is_right && inner == level) ? fmt::format("({})", text) : text;
  };
  switch (node.operation) {
    case Operation::kNumber:
    case Operation::kVariable:
      return leaf(node);
    case Operation::kAdd:
    case Operation::kSubtract:
    case Operation::kMultiply:
    case Operation::kDivide:
      return part(*node.left, false) + std::string(sign(node.operation, notation)) + part(*node.right, true);
    case Operation::kCeiling:
      return fmt::format("{}({})", sign(node.operation, notation), write(*node.left, notation, leaf));
    case Operation::kLarger:
    case Operation::kSmaller:
    case Operation::kPower:
      return fmt::format("{}({}, {})", sign(node.operation, notation), write(*node.left, notation, leaf),
                         write(*node.right, notation, leaf));
  }
  return "";
}

}  // namespace deepinfer::planner
