#include "checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/checked_math.h"
#include "json/json.h"

namespace deepinfer {
namespace {

struct DataRange {
  uint64_t begin = 0, end = 0;  // in the data section
};

Result<Shape> read_shape(const JsonRef& entry) {
  ASSIGN_OR_RETURN(const auto elements, entry["shape"].array());
  Shape shape;
  for (const JsonRef& element : elements) {
    ASSIGN_OR_RETURN(const int64_t dimension, element.int64());
    if (dimension < 0)
      return Error(Code::kInvalidArgument, "{}: found {}, expected >= 0", element.path(), dimension);
    shape.push_back(dimension);
  }
  return shape;
}

Result<DataRange> read_range(const JsonRef& entry) {
  const JsonRef offsets = entry["data_offsets"];
  ASSIGN_OR_RETURN(const auto elements, offsets.array());
  if (elements.size() != 2) {
    return Error(Code::kInvalidArgument, "{}: found {} numbers, expected 2", offsets.path(), elements.size());
  }
  DataRange range;
  ASSIGN_OR_RETURN(range.begin, elements[0].uint64());
  ASSIGN_OR_RETURN(range.end, elements[1].uint64());
  if (range.begin > range.end) {
    return Error(Code::kInvalidArgument, "{}: found [{}, {}], expected begin <= end", offsets.path(),
                 range.begin, range.end);
  }
  return range;
}

Result<SafetensorsEntry> read_entry(std::string_view name, const JsonValue& value, uint64_t prefix_bytes) {
  const JsonRef entry(value, std::string(name));
  SafetensorsEntry out;
  out.name = name;
  ASSIGN_OR_RETURN(out.dtype_name, entry["dtype"].string());
  out.dtype = dtype_from_name(out.dtype_name);
  ASSIGN_OR_RETURN(out.shape, read_shape(entry));
  ASSIGN_OR_RETURN(const DataRange range, read_range(entry));
  out.size_bytes = range.end - range.begin;
  const auto offset = checked_add(prefix_bytes, range.begin);
  if (!offset || !checked_add(*offset, out.size_bytes)) {
    return Error(Code::kInvalidArgument, "{}: data_offsets [{}, {}] overflow", name, range.begin, range.end);
  }
  out.offset = *offset;
  if (!out.dtype) return out;  // its element size is not known here
  const auto count = num_elements(out.shape);
  const auto expected = count ? checked_mul(*count, dtype_size(*out.dtype)) : std::nullopt;
  if (expected != out.size_bytes) {
    return Error(Code::kInvalidArgument, "{}: found {} bytes in data_offsets, expected {} for {} {}", name,
                 out.size_bytes, expected ? std::to_string(*expected) : "fewer than 2^64", out.dtype_name,
                 shape_string(out.shape));
  }
  return out;
}

// Tensors must follow one another from the first data byte to the end of the file.
void check_layout(SafetensorsHeader& header, uint64_t prefix_bytes, uint64_t file_bytes) {
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.offset, a.size_bytes) < std::pair(b.offset, b.size_bytes);
  });
  uint64_t end = prefix_bytes;
  std::string_view previous = "the header";
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.offset < end) {
      header.faults.push_back(
          fmt::format("{}: overlaps {} by {} bytes", entry.name, previous, end - entry.offset));
    } else if (entry.offset > end) {
      header.faults.push_back(
          fmt::format("{}: found {} unused bytes before it, expected none", entry.name, entry.offset - end));
    }
    if (entry.offset + entry.size_bytes >= end) {
      end = entry.offset + entry.size_bytes;
      previous = entry.name;
    }
  }
  if (end > file_bytes) {
    header.faults.push_back(fmt::format("truncated: found {} bytes, expected {}", file_bytes, end));
  } else if (end < file_bytes) {
    header.faults.push_back(
        fmt::format("found {} bytes behind the last tensor, expected none", file_bytes - end));
  }
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t prefix_bytes,
                                                   uint64_t file_bytes) {
  JsonParseOptions options;
  options.duplicate_keys = DuplicateKeys::kError;
  options.max_depth = 8;
  const auto document = parse_json(json, options);
  if (!document.ok()) return document.error().in("header");
  const JsonValue::Object* members = document->object();
  if (members == nullptr) {
    return Error(Code::kInvalidArgument, "header: found {}, expected object", document->kind_name());
  }
  SafetensorsHeader header;
  header.entries.reserve(members->size());
  for (const JsonMember& member : *members) {
    if (member.key == "__metadata__") continue;
    auto entry = read_entry(member.key, member.value, prefix_bytes);
    if (entry.ok()) {
      header.entries.push_back(std::move(*entry));
    } else {
      header.faults.push_back(entry.error().message());
    }
  }
  // A tensor that could not be read leaves a hole that is not a fault of its neighbours.
  if (header.faults.empty()) check_layout(header, prefix_bytes, file_bytes);
  return header;
}

Result<SafetensorsHeader> read_safetensors_header(const ReadFile& file) {
  std::array<unsigned char, 8> length_bytes{};
  if (file.size() < length_bytes.size()) {
    return Error(Code::kDataLoss, "truncated: found {} bytes, expected a safetensors file", file.size());
  }
  RETURN_IF_ERROR(file.read(0, std::as_writable_bytes(std::span(length_bytes))));
  uint64_t length = 0;
  for (size_t i = 0; i < length_bytes.size(); ++i) length |= uint64_t{length_bytes[i]} << (8 * i);
  if (length > kMaxSafetensorsHeaderBytes) {
    return Error(Code::kInvalidArgument, "found a header of {} bytes, expected at most {}", length,
                 kMaxSafetensorsHeaderBytes);
  }
  if (length > file.size() - length_bytes.size()) {
    return Error(Code::kDataLoss, "truncated: found {} bytes, expected {} for the header alone", file.size(),
                 length + length_bytes.size());
  }
  std::string json(length, '\0');
  RETURN_IF_ERROR(file.read(length_bytes.size(), std::as_writable_bytes(std::span(json))));
  return parse_safetensors_header(json, length_bytes.size() + length, file.size());
}

Result<SafetensorsFile> SafetensorsFile::load(const std::string& path) {
  ASSIGN_OR_RETURN(const ReadFile file, ReadFile::open(path));
  const auto header = read_safetensors_header(file);
  if (!header.ok()) return header.error().in(path);
  if (!header->faults.empty()) return Error(Code::kDataLoss, "{}: {}", path, fmt::join(header->faults, "; "));
  SafetensorsFile out;
  out.path_ = path;
  // The format aligns nothing: each tensor gets a place of its own, fit for any element type.
  uint64_t size = 0;
  for (const SafetensorsEntry& entry : header->entries) {
    if (!entry.dtype) {
      return Error(Code::kUnimplemented, "{}: {}: found {}, which is not read here", path, entry.name,
                   entry.dtype_name);
    }
    out.tensors_.emplace(entry.name, Slice{*entry.dtype, entry.shape, size, entry.size_bytes});
    size = round_up(size + entry.size_bytes, kLargestElementBytes);
  }
  if (size == 0) return out;
  ASSIGN_OR_RETURN(out.data_, AlignedBuffer::allocate(size));
  for (const SafetensorsEntry& entry : header->entries) {
    const uint64_t offset = out.tensors_.find(entry.name)->second.offset;
    RETURN_IF_ERROR(file.read(entry.offset, out.data_.bytes().subspan(offset, entry.size_bytes)));
  }
  return out;
}

Result<TensorView> SafetensorsFile::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return Error(Code::kNotFound, "{}: no tensor '{}'", path_, name);
  const Slice& slice = it->second;
  return TensorView{slice.dtype, slice.shape, data_.bytes().subspan(slice.offset, slice.size_bytes)};
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, slice] : tensors_) names.push_back(name);
  return names;
}

}  // namespace deepinfer
