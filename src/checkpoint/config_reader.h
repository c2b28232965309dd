// Reads the keys of one JSON object into fields, notes what is wrong with each, and remembers which keys were
// asked for. Private to the room.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/config.h"
#include "json/json.h"

namespace deepinfer {

// Thread-compatible. Borrows the document and the report.
class ConfigReader {
 public:
  ConfigReader(JsonRef object, ConfigReport& report);

  // Each reads one required key. A missing key, a wrong type and a value out of range are faults; the field
  // then keeps its value. A fault of an integer or of a whole object also means that the tensors' shapes are
  // not known.
  void integer(std::string_view key, int64_t& field, int64_t least, int64_t most);
  void token_id(std::string_view key, int32_t& field);
  void positive(std::string_view key, double& field);
  void not_negative(std::string_view key, double& field);
  void integers(std::string_view key, std::vector<int64_t>& field, int64_t least, int64_t most);
  // A key with only one value that this engine computes.
  void fixed(std::string_view key, const JsonValue& expected);
  // Present and not null. Marks the key as known.
  bool given(std::string_view key);
  // A key that changes nothing here.
  void ignore(std::string_view key) { known_.emplace_back(key); }

  // The object under `key`; a fault when it is missing or no object.
  std::optional<ConfigReader> object(std::string_view key);

  // Adds the keys that no call above has named to the report.
  void note_unknown_keys() const;

 private:
  JsonRef get(std::string_view key);
  void real(std::string_view key, double& field, bool zero_allowed);
  void fault(std::string message) { report_->faults.push_back(std::move(message)); }
  void shape_fault(std::string message);

  JsonRef object_;
  ConfigReport* report_;
  std::vector<std::string> known_;
};

}  // namespace deepinfer
