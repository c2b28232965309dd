// Responses that a client may ask for again, in SQLite: one file in write-ahead mode, or memory. The only
// file beside response_store.cc that knows SQLite. Private to the room.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

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

// Thread-safe; a call takes a fraction of a millisecond, however many responses there are. The owner of a
// response is a string that the caller makes of the client's key: nobody sees what another one stored. The file
// holds what clients wrote and the secret: nobody but its owner may read it.
class ResponseStore {
 public:
  // kIo: the file can't be opened or is not such a store.
  static Result<std::unique_ptr<ResponseStore>> open(ResponseStoreOptions options, const Clock& clock);
  ~ResponseStore();
  ResponseStore(const ResponseStore&) = delete;

  // Adds one that has begun, then drops what is too old and, oldest first, what exceeds the owner's limit.
  // kResourceExhausted: this one alone exceeds it.
  Status begin(const std::string& owner, const StoredResponse& response);
  // Its response object is now another one. `is_final`: it runs no longer. Nothing is done for one that was
  // deleted or dropped meanwhile: it stays away. Codes as begin(); one that grew beyond the limit goes.
  Status update(const std::string& owner, const std::string& id, const std::string& response, bool is_final);
  // kNotFound: unknown, expired, deleted or another owner's.
  Result<StoredResponse> get(const std::string& owner, const std::string& id);
  Status erase(const std::string& owner, const std::string& id);

  // Those that ran when an earlier process ended: owner and response.
  Result<std::vector<std::pair<std::string, StoredResponse>>> unfinished();

  // A secret of this store, made when it was: 32 bytes.
  Result<std::string> secret();

 private:
  class Statement;
  ResponseStore(sqlite3* database, ResponseStoreOptions options, const Clock& clock);
  Status prepare_tables();
  Status run(const char* sql, std::string_view what);
  // All of `changes` or nothing of it.
  template <typename Changes>
  Status transact(Changes changes);
  Status make_room(const std::string& owner);
  Status erase_row(const std::string& owner, const std::string& id);
  Status check_size(int64_t size) const;
  Status failed(std::string_view what) const;
  int64_t now_s() const;

  std::mutex mu_;  // of transactions: one connection has one at a time
  sqlite3* const database_;
  const ResponseStoreOptions options_;
  const Clock& clock_;  // outlives the store
};

}  // namespace deepinfer
