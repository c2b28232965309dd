#include "gateway/response_store.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace deepinfer {
namespace {

constexpr int kBusyTimeoutMs = 5000;
constexpr int kSecretBytes = 32;
constexpr int64_t kLayout = 2;  // of the tables; 1 (unnumbered): without totals

// The file, before there is anything in it, and what an earlier server left readable. SQLite gives its other
// files the same mode.
Status make_private(const std::string& path) {
  if (path.empty()) return {};
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return Error(Code::kIo, "stored responses ({}): can't open: {}", path, std::strerror(errno));
  const int changed = ::fchmod(file, 0600);
  const int error = errno;
  ::close(file);
  if (changed == 0) return {};
  return Error(Code::kIo, "stored responses ({}): can't keep others from reading it: {}", path, std::strerror(error));
}

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

  int64_t number_at(int column) const { return sqlite3_column_int64(statement_, column); }
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
  RETURN_IF_ERROR(make_private(options.path));
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

Status ResponseStore::run(const char* sql, std::string_view what) {
  Statement statement(database_, sql);
  int code = statement.step();
  while (code == SQLITE_ROW) code = statement.step();
  return code == SQLITE_DONE ? Status() : failed(what);
}

// Synchronous NORMAL in write-ahead mode: a crash of the machine may lose the last responses, never the file.
// `totals` is what each owner's responses take; triggers keep it, so that nobody has to add up the rows.
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
    RETURN_IF_ERROR(run(sql, "prepare"));
  }
  int64_t layout = 0;
  {
    Statement version(database_, "PRAGMA user_version");
    if (version.step() != SQLITE_ROW) return failed("read its layout");
    layout = version.number_at(0);
  }
  if (layout == kLayout) return {};
  if (layout > kLayout) {
    return Error(Code::kIo, "stored responses ({}): found layout {}, expected at most {}; a newer server made it",
                 options_.path, layout, kLayout);
  }
  return transact([this]() -> Status {
    for (const char* sql :
         {"ALTER TABLE responses ADD COLUMN is_running INTEGER NOT NULL DEFAULT 0",
          "CREATE INDEX by_running ON responses (is_running) WHERE is_running",
          "CREATE TABLE totals (owner BLOB PRIMARY KEY, size INTEGER NOT NULL)",
          "INSERT INTO totals SELECT owner, SUM(size) FROM responses GROUP BY owner",
          "CREATE TRIGGER added AFTER INSERT ON responses BEGIN INSERT INTO totals VALUES (NEW.owner, NEW.size)"
          " ON CONFLICT (owner) DO UPDATE SET size = size + NEW.size; END",
          "CREATE TRIGGER resized AFTER UPDATE OF size ON responses BEGIN"
          " UPDATE totals SET size = size + NEW.size - OLD.size WHERE owner = NEW.owner; END",
          "CREATE TRIGGER removed AFTER DELETE ON responses BEGIN"
          " UPDATE totals SET size = size - OLD.size WHERE owner = OLD.owner;"
          " DELETE FROM totals WHERE owner = OLD.owner AND size = 0; END",
          "PRAGMA user_version = 2"}) {
      RETURN_IF_ERROR(run(sql, "prepare"));
    }
    return {};
  });
}

template <typename Changes>
Status ResponseStore::transact(Changes changes) {
  const std::lock_guard lock(mu_);
  RETURN_IF_ERROR(run("BEGIN IMMEDIATE", "begin a change"));
  Status changed = changes();
  if (changed.ok()) changed = run("COMMIT", "store a change");
  if (!changed.ok() && sqlite3_get_autocommit(database_) == 0) {
    run("ROLLBACK", "take back a change").ok();  // the first failure is the one to tell
  }
  return changed;
}

Status ResponseStore::failed(std::string_view what) const {
  const std::string_view place = options_.path.empty() ? std::string_view("in memory") : options_.path;
  return Error(Code::kIo, "stored responses ({}): can't {}: {}", place, what,
               database_ == nullptr ? "no memory" : sqlite3_errmsg(database_));
}

int64_t ResponseStore::now_s() const {
  return std::chrono::duration_cast<std::chrono::seconds>(clock_.wall_now().time_since_epoch()).count();
}

Status ResponseStore::check_size(int64_t size) const {
  if (size <= options_.max_bytes_per_owner) return {};
  return Error(Code::kResourceExhausted, "the response takes {} bytes to store, expected at most {}", size,
               options_.max_bytes_per_owner);
}

// Rows of one second go in the order in which they came.
Status ResponseStore::make_room(const std::string& owner) {
  if (!Statement(database_, "DELETE FROM responses WHERE expires_s <= ?").number(now_s()).run()) {
    return failed("drop old responses");
  }
  while (true) {
    Statement total(database_, "SELECT size FROM totals WHERE owner = ? AND size > ?");
    const int code = total.text(owner).number(options_.max_bytes_per_owner).step();
    if (code == SQLITE_DONE) return {};
    Statement oldest(database_,
                     "DELETE FROM responses WHERE rowid ="
                     " (SELECT rowid FROM responses WHERE owner = ? ORDER BY expires_s, rowid LIMIT 1)");
    if (code != SQLITE_ROW || !oldest.text(owner).run()) return failed("make room");
  }
}

Status ResponseStore::begin(const std::string& owner, const StoredResponse& response) {
  const int64_t size = std::ssize(response.response) + std::ssize(response.input_items) + std::ssize(response.id);
  RETURN_IF_ERROR(check_size(size));
  return transact([&]() -> Status {
    Statement insert(database_,
                     "INSERT INTO responses (id, owner, previous_id, expires_s, size, response, input_items,"
                     " is_running) VALUES (?, ?, ?, ?, ?, ?, ?, 1)");
    insert.text(response.id).text(owner).text(response.previous_id);
    insert.number(now_s() + options_.time_to_live.count()).number(size);
    if (!insert.text(response.response).text(response.input_items).run()) return failed("store a response");
    return make_room(owner);
  });
}

Status ResponseStore::update(const std::string& owner, const std::string& id, const std::string& response,
                             bool is_final) {
  Status too_large;
  const Status updated = transact([&]() -> Status {
    Statement size(database_, "SELECT length(input_items) FROM responses WHERE id = ? AND owner = ?");
    const int code = size.text(id).text(owner).step();
    if (code == SQLITE_DONE) return {};
    if (code != SQLITE_ROW) return failed("read a response");
    const int64_t total = size.number_at(0) + std::ssize(response) + std::ssize(id);
    too_large = check_size(total);
    if (!too_large.ok()) return erase_row(owner, id);
    Statement update(database_,
                     "UPDATE responses SET response = ?, size = ?, expires_s = ?, is_running = ?"
                     " WHERE id = ? AND owner = ?");
    update.text(response).number(total).number(now_s() + options_.time_to_live.count()).number(is_final ? 0 : 1);
    if (!update.text(id).text(owner).run()) return failed("store a response");
    return make_room(owner);
  });
  return updated.ok() ? too_large : updated;
}

Result<std::vector<std::pair<std::string, StoredResponse>>> ResponseStore::unfinished() {
  std::vector<std::pair<std::string, StoredResponse>> out;
  Statement select(database_, "SELECT owner, id, previous_id, response, input_items FROM responses WHERE is_running");
  int code = select.step();
  for (; code == SQLITE_ROW; code = select.step()) {
    out.push_back({select.text_at(0), {select.text_at(1), select.text_at(2), select.text_at(3), select.text_at(4)}});
  }
  if (code != SQLITE_DONE) return failed("read a response").error();
  return out;
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
  return transact([&] { return erase_row(owner, id); });
}

Status ResponseStore::erase_row(const std::string& owner, const std::string& id) {
  if (!Statement(database_, "DELETE FROM responses WHERE id = ? AND owner = ?").text(id).text(owner).run()) {
    return failed("delete a response");
  }
  return {};
}

Result<std::string> ResponseStore::secret() {
  std::string fresh(kSecretBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(fresh.data()), kSecretBytes) != 1) {
    return Error(Code::kInternal, "the system gave no random bytes");
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
