// Responses that a client may ask for again, in SQLite: one file in write-ahead mode, or memory. The only
// file beside response_store.cc that knows SQLite. Private to the room.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"

struct sqlite3;

namespace deepinfer {

struct StoredResponse {
  std::string id;
  std::string previous_id;  // empty: none
  std::string response;     // the response object, JSON
  std::string input_items;  // a JSON array
};

struct ResponseStoreOptions {
  std::string path;  // empty: in memory, gone with the process
  std::chrono::seconds time_to_live{std::chrono::hours(24 * 30)};
  int64_t max_bytes_per_owner = int64_t{256} << 20;
};

// Thread-safe (SQLite's own mutex); a call takes a fraction of a millisecond. Whoever owns a response is a
// string that the caller makes of the client's key: nobody sees what another one stored.
class ResponseStore {
 public:
  // kIo: the file can't be opened or is no such store.
  static Result<std::unique_ptr<ResponseStore>> open(ResponseStoreOptions options, const Clock& clock);
  ~ResponseStore();
  ResponseStore(const ResponseStore&) = delete;

  // Adds or replaces it, then drops what is too old and, oldest first, what exceeds the owner's limit.
  // kResourceExhausted: this one alone exceeds it.
  Status put(const std::string& owner, const StoredResponse& response);
  // kNotFound: unknown, expired, deleted or another owner's.
  Result<StoredResponse> get(const std::string& owner, const std::string& id);
  Status erase(const std::string& owner, const std::string& id);

  // A secret of this store, made when it was: 32 bytes.
  Result<std::string> secret();

 private:
  class Statement;
  ResponseStore(sqlite3* database, ResponseStoreOptions options, const Clock& clock);
  Status prepare_tables();
  Status failed(std::string_view what) const;
  int64_t now_s() const;

  sqlite3* const database_;
  const ResponseStoreOptions options_;
  const Clock& clock_;  // outlives the store
};

}  // namespace deepinfer
