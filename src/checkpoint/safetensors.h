// The safetensors container: 8 bytes little-endian length, a JSON header of that length, then the tensors'
// bytes without gaps. See docs/formats/checkpoint.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/read_file.h"
#include "base/status.h"
#include "tensor/tensor.h"

namespace deepinfer {

inline constexpr uint64_t kLargestElementBytes = 8;
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the limit of the format's own library

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;      // as in the file
  std::optional<DType> dtype;  // nullopt for a type that nothing here reads
  Shape shape;
  uint64_t offset = 0;  // of the first byte in the file
  uint64_t size_bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by offset
  std::vector<std::string> faults;        // what is wrong with single tensors, or with the file's length
};

// Checks everything that can be known without the bytes: types, shapes against sizes, offsets without gap or
// overlap, and that the file holds exactly what the header promises. `prefix_bytes` is 8 + the header's
// length. kInvalidArgument when the text as a whole can't be used.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t prefix_bytes,
                                                   uint64_t file_bytes);

// The same from a file. Refuses a header beyond the limit or the file's end before allocating anything for
// it.
Result<SafetensorsHeader> read_safetensors_header(const ReadFile& file);

// All tensors of one plain file in memory, for golden data and tests. Owns the bytes. Thread-compatible.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> load(const std::string& path);

  bool contains(std::string_view name) const { return tensors_.contains(name); }
  // kNotFound with the file's name. The view borrows from this object.
  Result<TensorView> find(std::string_view name) const;
  std::vector<std::string> names() const;

 private:
  struct Slice {
    DType dtype;
    Shape shape;
    uint64_t offset;  // in data_
    uint64_t size_bytes;
  };

  std::string path_;
  AlignedBuffer data_;  // the tensors, each at a multiple of kLargestElementBytes
  std::map<std::string, Slice, std::less<>> tensors_;
};

}  // namespace deepinfer
