#include "gateway/response_store.h"

#include <openssl/rand.h>
#include <sqlite3.h>

namespace deepinfer {
namespace {

constexpr int kBusyTimeoutMs = 5000;
constexpr int kSecretBytes = 32;

}  // namespace

// One prepared statement, bound in the order of its question marks and finalised at the end.
class ResponseStore::Statement {
 public:
  Statement(sqlite3* database, const char* sql) {
    if (sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr) != SQLITE_OK) statement_ = nullptr;
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;

  Statement& text(const std::string& value) {
    if (statement_ != nullptr) {
      sqlite3_bind_blob64(statement_, ++bound_, value.data(), value.size(), SQLITE_TRANSIENT);
    }
    return *this;
  }
  Statement& number(int64_t value) {
    if (statement_ != nullptr) sqlite3_bind_int64(statement_, ++bound_, value);
    return *this;
  }
  // SQLITE_ROW, SQLITE_DONE or an error.
  int step() { return statement_ == nullptr ? SQLITE_ERROR : sqlite3_step(statement_); }
  bool run() { return step() == SQLITE_DONE; }

  std::string text_at(int column) const {
    const void* bytes = sqlite3_column_blob(statement_, column);
    const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
    return bytes == nullptr ? std::string() : std::string(static_cast<const char*>(bytes), size);
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

Result<std::unique_ptr<ResponseStore>> ResponseStore::open(ResponseStoreOptions options, const Clock& clock) {
  sqlite3* database = nullptr;
  const std::string path = options.path.empty() ? ":memory:" : options.path;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
  const int code = sqlite3_open_v2(path.c_str(), &database, flags, nullptr);
  // From here on the store closes it.
  std::unique_ptr<ResponseStore> store(new ResponseStore(database, std::move(options), clock));
  if (code != SQLITE_OK) return store->failed("open").error();
  sqlite3_busy_timeout(database, kBusyTimeoutMs);
  RETURN_IF_ERROR(store->prepare_tables());
  return store;
}

ResponseStore::ResponseStore(sqlite3* database, ResponseStoreOptions options, const Clock& clock)
    : database_(database), options_(std::move(options)), clock_(clock) {}

ResponseStore::~ResponseStore() {
  sqlite3_close_v2(database_);
}

// Synchronous NORMAL in write-ahead mode: a crash of the machine may lose the last responses, never the file.
Status ResponseStore::prepare_tables() {
  for (const char* sql :
       {"PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL",
        "CREATE TABLE IF NOT EXISTS responses (id BLOB PRIMARY KEY, owner BLOB NOT NULL, previous_id BLOB "
        "NOT NULL,"
        " expires_s INTEGER NOT NULL, size INTEGER NOT NULL, response BLOB NOT NULL, input_items BLOB NOT "
        "NULL)",
        "CREATE INDEX IF NOT EXISTS by_owner ON responses (owner, expires_s)",
        "CREATE INDEX IF NOT EXISTS by_expiry ON responses (expires_s)",
        "CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value BLOB NOT NULL)"}) {
    Statement statement(database_, sql);
    const int code = statement.step();
    if (code != SQLITE_DONE && code != SQLITE_ROW) return failed("prepare");
  }
  return {};
}

Status ResponseStore::failed(std::string_view what) const {
  const std::string_view place = options_.path.empty() ? std::string_view("in memory") : options_.path;
  return Error(Code::kIo, "stored responses ({}): can't {}: {}", place, what,
               database_ == nullptr ? "no memory" : sqlite3_errmsg(database_));
}

int64_t ResponseStore::now_s() const {
  return std::chrono::duration_cast<std::chrono::seconds>(clock_.wall_now().time_since_epoch()).count();
}

Status ResponseStore::put(const std::string& owner, const StoredResponse& response) {
  const auto size =
      static_cast<int64_t>(response.response.size() + response.input_items.size() + response.id.size());
  if (size > options_.max_bytes_per_owner) {
    return Error(Code::kResourceExhausted, "the response takes {} bytes to store, expected at most {}", size,
                 options_.max_bytes_per_owner);
  }
  Statement insert(
      database_,
      "INSERT OR REPLACE INTO responses (id, owner, previous_id, expires_s, size, response, input_items)"
      " VALUES (?, ?, ?, ?, ?, ?, ?)");
  insert.text(response.id).text(owner).text(response.previous_id);
  insert.number(now_s() + options_.time_to_live.count()).number(size);
  if (!insert.text(response.response).text(response.input_items).run()) return failed("store a response");
  if (!Statement(database_, "DELETE FROM responses WHERE expires_s <= ?").number(now_s()).run()) {
    return failed("drop old responses");
  }
  // Of the newest on, as many as fit stay; rows of one second keep the order in which they came.
  Statement trim(
      database_,
      "DELETE FROM responses WHERE rowid IN (SELECT rowid FROM (SELECT rowid, SUM(size) OVER"
      " (ORDER BY expires_s DESC, rowid DESC) AS total FROM responses WHERE owner = ?) WHERE total > ?)");
  if (!trim.text(owner).number(options_.max_bytes_per_owner).run()) return failed("make room");
  return {};
}

Result<StoredResponse> ResponseStore::get(const std::string& owner, const std::string& id) {
  Statement select(database_,
                   "SELECT previous_id, response, input_items FROM responses"
                   " WHERE id = ? AND owner = ? AND expires_s > ?");
  const int code = select.text(id).text(owner).number(now_s()).step();
  if (code == SQLITE_DONE) return Error(Code::kNotFound, "Response with id '{}' not found.", id);
  if (code != SQLITE_ROW) return failed("read a response").error();
  return StoredResponse{id, select.text_at(0), select.text_at(1), select.text_at(2)};
}

Status ResponseStore::erase(const std::string& owner, const std::string& id) {
  if (!Statement(database_, "DELETE FROM responses WHERE id = ? AND owner = ?").text(id).text(owner).run()) {
    return failed("delete a response");
  }
  return {};
}

Result<std::string> ResponseStore::secret() {
  std::string fresh(kSecretBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(fresh.data()), kSecretBytes) != 1) {
    return Error(Code::kInternal, "no random bytes from the system");
  }
  Statement insert(database_, "INSERT OR IGNORE INTO settings (name, value) VALUES ('secret', ?)");
  if (!insert.text(fresh).run()) return failed("make a secret").error();
  Statement select(database_, "SELECT value FROM settings WHERE name = 'secret'");
  if (select.step() != SQLITE_ROW) return failed("read its secret").error();
  std::string secret = select.text_at(0);
  if (secret.size() != kSecretBytes) {
    return Error(Code::kIo, "stored responses: found a secret of {} bytes, expected {}", secret.size(),
                 kSecretBytes);
  }
  return secret;
}

}  // namespace deepinfer
