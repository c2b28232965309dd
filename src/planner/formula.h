// A formula as a value: written once in C++ with units checked by the compiler, then computed, shown with its numbers,
// and turned into JavaScript from the same tree.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "planner/units.h"

namespace deepinfer::planner {

enum class Operation { kNumber, kVariable, kAdd, kSubtract, kMultiply, kDivide, kLarger, kSmaller, kCeiling, kPower };

struct Node;
using NodePtr = std::shared_ptr<const Node>;  // shared by all formulas that hold it; never changed
struct Node {
  Operation operation;
  double number = 0;           // kNumber: in base units; kPower: the exponent is `right`
  std::string_view unit = {};  // kNumber: as written
  double scale = 1;
  int variable = 0;  // kVariable: place in the model's values
  NodePtr left = nullptr, right = nullptr;
};

NodePtr make_node(Operation operation, NodePtr left, NodePtr right = nullptr);

double compute(const Node& node, std::span<const double> values);

// x to the power of n, n rounded to a whole number from 0 to 2^31: squares and products only, so that every language
// that has IEEE doubles gets the same bits.
double whole_power(double x, double n);

enum class Notation { kText, kJavaScript };
// leaf: how numbers and variables are written.
std::string write(const Node& node, Notation notation, const std::function<std::string(const Node&)>& leaf);

// A formula whose value has unit U.
template <typename U>
struct Term {
  NodePtr node;
};

inline Term<Pure> number(double value) {
  return {std::make_shared<const Node>(Node{Operation::kNumber, value})};
}
template <typename U>
Term<U> constant(double value, const Measure<U>& measure) {
  return {std::make_shared<const Node>(Node{Operation::kNumber, value * measure.scale, measure.text, measure.scale})};
}

template <typename U>
Term<U> operator+(const Term<U>& a, const Term<U>& b) {
  return {make_node(Operation::kAdd, a.node, b.node)};
}
template <typename U>
Term<U> operator-(const Term<U>& a, const Term<U>& b) {
  return {make_node(Operation::kSubtract, a.node, b.node)};
}
template <typename U, typename V>
Term<Product<U, V>> operator*(const Term<U>& a, const Term<V>& b) {
  return {make_node(Operation::kMultiply, a.node, b.node)};
}
template <typename U, typename V>
Term<Quotient<U, V>> operator/(const Term<U>& a, const Term<V>& b) {
  return {make_node(Operation::kDivide, a.node, b.node)};
}
inline Term<Pure> operator+(double a, const Term<Pure>& b) {
  return number(a) + b;
}
inline Term<Pure> operator-(double a, const Term<Pure>& b) {
  return number(a) - b;
}
inline Term<Pure> operator-(const Term<Pure>& a, double b) {
  return a - number(b);
}
template <typename U>
Term<U> operator*(double a, const Term<U>& b) {
  return number(a) * b;
}
template <typename U>
Term<U> operator/(const Term<U>& a, double b) {
  return a / number(b);
}
template <typename U>
Term<U> larger(const Term<U>& a, const Term<U>& b) {
  return {make_node(Operation::kLarger, a.node, b.node)};
}
template <typename U>
Term<U> smaller(const Term<U>& a, const Term<U>& b) {
  return {make_node(Operation::kSmaller, a.node, b.node)};
}
inline Term<Pure> ceiling(const Term<Pure>& a) {
  return {make_node(Operation::kCeiling, a.node)};
}
// Up to whole units of `unit`.
template <typename U>
Term<U> whole(const Term<U>& a, const Term<U>& unit) {
  return ceiling(a / unit) * unit;
}
inline Term<Pure> power(const Term<Pure>& a, const Term<Pure>& exponent) {
  return {make_node(Operation::kPower, a.node, exponent.node)};
}

}  // namespace deepinfer::planner
