#include "checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "base/printable.h"
#include "checkpoint/tensor_list.h"
#include "json/json.h"

namespace deepinfer {
namespace {

constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr char kSingleName[] = "model.safetensors";
constexpr uint64_t kMaxConfigBytes = 16 << 20;
constexpr uint64_t kMaxIndexBytes = 1 << 30;
constexpr size_t kFaultsShown = 40;
constexpr std::string_view kNoShard;  // where the index puts a tensor whose entry is a fault

std::string_view without_prefix(std::string_view name) {
  constexpr std::string_view kPrefix = "model.";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

// The norms of the hyper-connections are folded into their `fn` in a released checkpoint.
bool is_unfolded_norm(std::string_view name) {
  const size_t part = name.rfind("hc_");
  return part != std::string_view::npos && name.substr(part).ends_with("_norm.weight") &&
         name.find('.', part) == name.size() - 7;
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

std::string faults_text(const std::string& directory, const std::vector<std::string>& faults) {
  const size_t shown = std::min(faults.size(), kFaultsShown);
  std::string text = fmt::format("{}: {} fault{}", directory, faults.size(), faults.size() == 1 ? "" : "s");
  for (size_t i = 0; i < shown; ++i) text += "\n  " + faults[i];
  if (shown < faults.size()) text += fmt::format("\n  … and {} more", faults.size() - shown);
  return text;
}

}  // namespace

// One pass over a directory: config, then the index, then every shard's header, then the list of what must be
// there.
class CheckpointOpener {
 public:
  explicit CheckpointOpener(const std::string& directory) : directory_(directory) {}

  CheckpointReport open() {
    const bool shapes_known = read_config();
    if (report_.found) {
      read_index();
      for (const auto& [shard, count] : shards_) read_shard(shard, count);
      check_index_against_shards();
      if (shapes_known) check_tensors();
      note_unused();
    }
    std::sort(report_.faults.begin(), report_.faults.end());
    if (report_.faults.empty()) {
      checkpoint_.directory_ = directory_;
      checkpoint_.config_ = report_.config;
      report_.checkpoint.emplace(std::move(checkpoint_));
    }
    return std::move(report_);
  }

 private:
  struct Found {
    SafetensorsEntry entry;
    size_t file_idx = 0;
    bool used = false;
  };

  std::string path_of(std::string_view file) const { return fmt::format("{}/{}", directory_, file); }

  template <typename... Args>
  void fault(fmt::format_string<Args...> format, Args&&... args) {
    report_.faults.push_back(printable(fmt::format(format, std::forward<Args>(args)...)));
  }
  // Messages of file operations begin with the whole path; faults name the file inside the directory.
  void file_fault(std::string_view file, const Error& error) {
    const std::string path = path_of(file) + ": ";
    std::string_view message = error.message();
    if (message.starts_with(path)) message.remove_prefix(path.size());
    fault("{}: {}", file, message);
  }

  // True when the names and shapes of the tensors follow from what was read.
  bool read_config() {
    const auto text = ReadFile::read_text(path_of("config.json"), kMaxConfigBytes);
    if (!text.ok()) {
      report_.found = text.error().code() != Code::kNotFound;
      file_fault("config.json", text.error());
      return false;
    }
    report_.found = true;
    ConfigReport config = read_model_config(*text);
    for (const std::string& message : config.faults) fault("config.json: {}", message);
    report_.config = std::move(config.config);
    return config.shapes_known;
  }

  void read_index() {
    const auto text = ReadFile::read_text(path_of(kIndexName), kMaxIndexBytes);
    if (!text.ok() && text.error().code() == Code::kNotFound) {
      std::error_code ignored;  // what is there but can't be opened is a fault of read_shard()
      if (std::filesystem::symlink_status(path_of(kSingleName), ignored).type() !=
          std::filesystem::file_type::not_found) {
        shards_[kSingleName] = 0;
      } else {
        fault("{}: not found, and no {} either", kIndexName, kSingleName);
        weights_unknown_ = true;
      }
      return;
    }
    has_index_ = true;
    if (const Status status = text.ok() ? read_weight_map(*text) : text.status(); !status.ok()) {
      file_fault(kIndexName, status.error());
      weights_unknown_ = true;
    }
  }

  Status read_weight_map(std::string_view text) {
    JsonParseOptions strict;
    strict.duplicate_keys = DuplicateKeys::kError;
    ASSIGN_OR_RETURN(const JsonValue index, parse_json(text, strict));
    ASSIGN_OR_RETURN(const JsonValue::Object* weight_map, JsonRef(index)["weight_map"].object());
    index_.reserve(weight_map->size());
    for (const JsonMember& member : *weight_map) {
      const std::string* shard = member.value.string();
      const std::string name(without_prefix(member.key));
      if (shard == nullptr) {
        fault("{}: weight_map.{}: found {}, expected string", kIndexName, member.key,
              member.value.kind_name());
        index_.emplace(name, kNoShard);
      } else if (!is_file_name(*shard)) {
        fault("{}: weight_map.{}: found '{}', expected the name of a file in this directory", kIndexName,
              member.key, *shard);
        index_.emplace(name, kNoShard);
      } else if (!index_.emplace(name, *shard).second) {
        fault("{}: weight_map.{}: named twice, with and without 'model.'", kIndexName, member.key);
      } else {
        ++shards_[*shard];
      }
    }
    return {};
  }

  void read_shard(const std::string& shard, size_t num_named) {
    auto file = ReadFile::open(path_of(shard));
    if (!file.ok()) {
      note_broken(shard);
      if (file.error().code() != Code::kNotFound || !has_index_) return file_fault(shard, file.error());
      return fault("{}: not found, but {} names it for {} tensors", shard, kIndexName, num_named);
    }
    auto header = read_safetensors_header(*file);
    if (!header.ok()) {
      note_broken(shard);
      return file_fault(shard, header.error());
    }
    for (const std::string& message : header->faults) fault("{}: {}", shard, message);
    if (!header->faults.empty()) note_broken(shard);
    const size_t file_idx = checkpoint_.files_.size();
    checkpoint_.files_.push_back(std::move(*file));
    shard_names_.push_back(shard);
    for (SafetensorsEntry& entry : header->entries) note_found(std::move(entry), file_idx);
  }

  // A shard with faults of its own may have lost entries to them, so those that it lacks are not faults.
  void note_broken(const std::string& shard) {
    broken_shards_.insert(shard);
    if (!has_index_) weights_unknown_ = true;
  }

  void note_found(SafetensorsEntry entry, size_t file_idx) {
    const std::string name(without_prefix(entry.name));
    const auto [it, is_new] = found_.try_emplace(name, Found{std::move(entry), file_idx, false});
    if (!is_new) {
      fault("{}: {}: also in {}", shard_names_[file_idx], name, shard_names_[it->second.file_idx]);
    }
  }

  void check_index_against_shards() {
    for (const auto& [name, shard] : index_) {
      if (shard == kNoShard) continue;
      const auto it = found_.find(name);
      if (it == found_.end()) {
        if (!broken_shards_.contains(shard)) {
          fault("{}: {}: not found, but {} names this shard for it", shard, name, kIndexName);
        }
      } else if (shard_names_[it->second.file_idx] != shard) {
        fault("{}: {}: found here, but {} says {}", shard_names_[it->second.file_idx], name, kIndexName,
              shard);
      }
    }
  }

  void check_tensors() {
    for (ExpectedTensor& tensor : expected_tensors(report_.config)) {
      const auto it = found_.find(tensor.name);
      if (it != found_.end()) {
        check_tensor(tensor, it->second);
      } else if (!weights_unknown_ && !index_.contains(tensor.name)) {
        // Named by the index but not found: reported with its shard.
        fault("{}: {}: not found, expected {} {}", has_index_ ? kIndexName : kSingleName, tensor.name,
              dtype_name(tensor.dtype), shape_string(tensor.shape));
      }
    }
  }

  void check_tensor(ExpectedTensor& expected, Found& found) {
    const SafetensorsEntry& entry = found.entry;
    found.used = true;
    const std::string& shard = shard_names_[found.file_idx];
    if (has_index_ && !index_.contains(expected.name)) {
      fault("{}: {}: found here, but {} does not name it", shard, expected.name, kIndexName);
    } else if (entry.dtype != expected.dtype || entry.shape != expected.shape) {
      fault("{}: {}: found {} {}, expected {} {}", shard, expected.name, entry.dtype_name,
            shape_string(entry.shape), dtype_name(expected.dtype), shape_string(expected.shape));
    }
    checkpoint_.tensors_.emplace(std::move(expected.name),
                                 TensorLocation{expected.dtype, std::move(expected.shape), found.file_idx,
                                                entry.offset, entry.size_bytes});
  }

  void note_unused() {
    std::vector<std::string> norms;
    for (const auto& [name, found] : found_) {
      if (found.used) continue;
      if (is_unfolded_norm(name)) norms.push_back(name);
      checkpoint_.unused_tensors_.push_back(name);
    }
    std::sort(checkpoint_.unused_tensors_.begin(), checkpoint_.unused_tensors_.end());
    if (norms.empty()) return;
    std::sort(norms.begin(), norms.end());
    fault(
        "{}: found {} tensors like this, expected none: the checkpoint is unfolded (a stage of training), "
        "not the "
        "released form",
        norms.front(), norms.size());
  }

  const std::string directory_;
  CheckpointReport report_;
  Checkpoint checkpoint_;
  bool has_index_ = false;
  bool weights_unknown_ = false;                        // a missing tensor is not a fault: another fault says why
  std::map<std::string, size_t> shards_;                // name, and how many tensors the index puts there
  std::unordered_map<std::string, std::string> index_;  // tensor without prefix, shard
  std::vector<std::string> shard_names_;                // by file_idx
  std::set<std::string> broken_shards_;
  std::unordered_map<std::string, Found> found_;  // tensor without prefix
};

Checkpoint::Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

CheckpointReport Checkpoint::inspect(const std::string& directory) {
  return CheckpointOpener(directory).open();
}

Result<Checkpoint> Checkpoint::open(const std::string& directory) {
  CheckpointReport report = inspect(directory);
  if (report.checkpoint) return std::move(*report.checkpoint);
  return Error(report.found ? Code::kInvalidArgument : Code::kNotFound, "{}",
               faults_text(directory, report.faults));
}

std::vector<std::string> Checkpoint::files() const {
  std::vector<std::string> paths;
  for (const ReadFile& file : files_) paths.push_back(file.path());
  return paths;
}

Status Checkpoint::read(std::string_view name, std::span<std::byte> out,
                        const std::function<void(uint64_t)>& on_bytes) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return Error(Code::kNotFound, "{}: no tensor '{}'", directory_, name);
  const TensorLocation& location = it->second;
  if (out.size() != location.size_bytes) {
    return Error(Code::kInvalidArgument, "{}: found room for {} bytes, expected {}", name, out.size(),
                 location.size_bytes);
  }
  const Status status = files_[location.file_idx].read(location.offset, out, on_bytes);
  return status.ok() ? status : Status(status.error().in(name));
}

Status Checkpoint::read_part(std::string_view name, uint64_t offset, std::span<std::byte> out) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) return Error(Code::kNotFound, "{}: no tensor '{}'", directory_, name);
  const TensorLocation& location = it->second;
  if (offset > location.size_bytes || out.size() > location.size_bytes - offset) {
    return Error(Code::kInvalidArgument, "{}: found bytes {} to {}, expected up to {}", name, offset,
                 offset + out.size(), location.size_bytes);
  }
  const Status status = files_[location.file_idx].read(location.offset + offset, out);
  return status.ok() ? status : Status(status.error().in(name));
}

}  // namespace deepinfer
