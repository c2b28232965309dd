// The value tree and typed access by path.
#include <algorithm>

#include "json/json.h"
#include "json/lookups.h"

namespace deepinfer {
namespace {

const JsonValue* find_member(const JsonValue::Object* object, std::string_view key) {
  if (object == nullptr) return nullptr;
  const auto it =
      std::find_if(object->begin(), object->end(), [&](const JsonMember& m) { return m.key == key; });
  return it == object->end() ? nullptr : &it->value;
}

thread_local JsonLookups* lookups = nullptr;

}  // namespace

std::string_view JsonValue::kind_name() const {
  switch (kind()) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return "boolean";
    case Kind::kInt64:
    case Kind::kUint64:
      return "integer";
    case Kind::kDouble:
      return "number";
    case Kind::kString:
      return "string";
    case Kind::kArray:
      return "array";
    case Kind::kObject:
      return "object";
  }
  return "value";
}

std::optional<bool> JsonValue::boolean() const {
  const bool* value = std::get_if<bool>(&value_);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<int64_t> JsonValue::int64() const {
  const int64_t* value = std::get_if<int64_t>(&value_);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<uint64_t> JsonValue::uint64() const {
  if (const uint64_t* value = std::get_if<uint64_t>(&value_)) return *value;
  const auto value = int64();
  if (!value || *value < 0) return std::nullopt;
  return static_cast<uint64_t>(*value);
}

std::optional<double> JsonValue::number() const {
  if (const double* value = std::get_if<double>(&value_)) return *value;
  if (const auto value = int64()) return static_cast<double>(*value);
  if (const auto value = uint64()) return static_cast<double>(*value);
  return std::nullopt;
}

const JsonValue* JsonValue::find(std::string_view key) const {
  return find_member(object(), key);
}
JsonValue* JsonValue::find(std::string_view key) {
  return const_cast<JsonValue*>(find_member(object(), key));
}

bool operator==(const JsonValue& a, const JsonValue& b) {
  return a.value_ == b.value_;
}

JsonLookups::JsonLookups() : outer_(lookups) {
  lookups = this;
}
JsonLookups::~JsonLookups() {
  lookups = outer_;
}
void JsonLookups::note(std::string_view path) {
  std::string plain;
  for (const char c : path) {
    if (plain.empty() || plain.back() != '[' || c < '0' || c > '9') plain += c;
  }
  paths_.insert(std::move(plain));
}

JsonRef JsonRef::operator[](std::string_view key) const {
  std::string path = path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  if (lookups != nullptr) lookups->note(path);
  return JsonRef(present() ? value_->find(key) : nullptr, std::move(path));
}

JsonRef JsonRef::operator[](size_t index) const {
  const JsonValue::Array* elements = present() ? value_->array() : nullptr;
  const bool inside = elements != nullptr && index < elements->size();
  return JsonRef(inside ? &(*elements)[index] : nullptr, fmt::format("{}[{}]", path_, index));
}

Error JsonRef::mismatch(std::string_view expected) const {
  return Error(Code::kInvalidArgument, "{}: found {}, expected {}", path_.empty() ? "document" : path_,
               present() ? value_->kind_name() : "nothing", expected);
}

Result<bool> JsonRef::boolean() const {
  if (const auto value = present() ? value_->boolean() : std::nullopt) return *value;
  return mismatch("boolean");
}

Result<int64_t> JsonRef::int64() const {
  if (const auto value = present() ? value_->int64() : std::nullopt) return *value;
  return mismatch(present() && value_->uint64() ? "integer below 2^63" : "integer");
}

Result<uint64_t> JsonRef::uint64() const {
  if (const auto value = present() ? value_->uint64() : std::nullopt) return *value;
  return mismatch("integer from 0 to 2^64-1");
}

Result<double> JsonRef::number() const {
  if (const auto value = present() ? value_->number() : std::nullopt) return *value;
  return mismatch("number");
}

Result<std::string> JsonRef::string() const {
  if (const std::string* value = present() ? value_->string() : nullptr) return *value;
  return mismatch("string");
}

Result<std::vector<JsonRef>> JsonRef::array() const {
  const JsonValue::Array* elements = present() ? value_->array() : nullptr;
  if (elements == nullptr) return mismatch("array");
  std::vector<JsonRef> out;
  out.reserve(elements->size());
  for (size_t i = 0; i < elements->size(); ++i) out.push_back((*this)[i]);
  return out;
}

Result<const JsonValue::Object*> JsonRef::object() const {
  if (const JsonValue::Object* value = present() ? value_->object() : nullptr) return value;
  return mismatch("object");
}

}  // namespace deepinfer
