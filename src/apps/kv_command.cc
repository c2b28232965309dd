#include "apps/kv_command.h"

#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "json/json.h"
#include "store/log/inspect.h"

namespace deepinfer {
namespace {

constexpr char kKvExamples[] =
    R"(Works on a directory in use and on one that no process holds; writes nothing. Exit code 1 when something is damaged.

Examples:
  deepinfer kv check /var/lib/deepinfer/kv
  deepinfer kv stat  /var/lib/deepinfer/kv --json | jq .records
  deepinfer kv dump  /var/lib/deepinfer/kv | head)";

struct KvOptions {
  std::string directory;
  bool json = false;
};

enum class KvTask { kCheck, kStat, kDump };

JsonValue to_json_value(const store::DriveReport& report) {
  JsonValue::Array segments, damage, unknown;
  for (const auto& segment : report.segments)
    segments.push_back(JsonValue::Object{{"file", segment.file},
                                         {"state", segment.state},
                                         {"class", store::class_name(segment.retention)},
                                         {"generation", segment.generation},
                                         {"records", segment.records},
                                         {"unfinished", segment.unfinished},
                                         {"bytes", segment.bytes}});
  for (const auto& one : report.damage)
    damage.push_back(JsonValue::Object{{"file", one.file}, {"offset", one.offset}, {"what", one.what}});
  for (const auto& name : report.unknown_files) unknown.push_back(name);
  JsonValue::Object classes;
  for (size_t c = 0; c < store::kNumClasses; ++c)
    classes.push_back(
        {std::string(store::class_name(static_cast<store::RetentionClass>(c))), report.by_class[c]});
  JsonValue::Object kinds;
  for (size_t k = 0; k < store::kNumKinds; ++k)
    kinds.push_back({std::string(store::kind_name(static_cast<store::RecordKind>(k))), report.by_kind[k]});
  JsonValue::Object domains;
  for (const auto& [number, records] : report.by_domain) domains.push_back({std::to_string(number), records});
  return JsonValue::Object{{"drive", hex(report.meta.id)}, {"epoch", report.meta.epoch},
                           {"records", report.records},           {"derived", report.derived},
                           {"encrypted", report.encrypted},       {"kinds", std::move(kinds)},
                           {"classes", std::move(classes)},
                           {"domains", std::move(domains)},       {"oldest_ms", report.oldest_ms},
                           {"newest_ms", report.newest_ms},       {"segments", std::move(segments)},
                           {"damage", std::move(damage)},         {"unknown_files", std::move(unknown)}};
}

void print_damage(const store::DriveReport& report) {
  for (const auto& one : report.damage) fmt::print("{}: byte {}: {}\n", one.file, one.offset, one.what);
  for (const auto& name : report.unknown_files) fmt::print("{}: no file of the store\n", name);
}

void print_stat(const store::DriveReport& report) {
  fmt::print("drive {} opened {} times for writing\n", hex(report.meta.id), report.meta.epoch);
  fmt::print("{:<16} {:<8} {:<12} {:>10} {:>10} {:>14}\n", "segment", "state", "class", "records",
             "unfinished", "bytes");
  for (const auto& segment : report.segments)
    fmt::print("{:<16} {:<8} {:<12} {:>10} {:>10} {:>14}\n", segment.file, segment.state,
               store::class_name(segment.retention), segment.records, segment.unfinished, segment.bytes);
  for (const auto& [number, records] : report.by_domain)
    fmt::print("domain {}: {} records\n", number, records);
  fmt::print("{} records ({} of window states, {} derived, {} encrypted)\n", report.records,
             report.by_kind[static_cast<size_t>(store::RecordKind::kWindowState)], report.derived, report.encrypted);
}

void print_record(const std::string& file, const store::RecordHeader& record) {
  fmt::print("{}\n", to_json(JsonValue(JsonValue::Object{
                         {"file", file},
                         {"slot", record.slot},
                         {"kind", store::kind_name(record.kind)},
                         {"key", hex(record.key)},
                         {"parent", hex(record.parent)},
                         {"block_index", record.block_index},
                         {"domain", record.domain},
                         {"class", store::class_name(record.retention)},
                         {"lineage", record.lineage == Lineage::kExact ? "exact" : "derived"},
                         {"encrypted", record.encrypted},
                         {"created_ms", record.created_ms},
                         {"cost_us", record.cost_us},
                         {"sequence", record.sequence},
                         {"payload_bytes", record.payload_bytes}})));
}

int run_kv(const KvOptions& options, KvTask task) {
  const auto backend = store::make_io_backend(store::IoKind::kThreads);
  if (!backend.ok()) return fail(backend.error());
  store::InspectOptions inspect;
  inspect.read_records = task != KvTask::kStat;
  if (task == KvTask::kDump) inspect.on_record = print_record;
  // The directory of `serve --kv-dir` keeps the drive in blocks/, beside its key.
  const std::filesystem::path inner = std::filesystem::path(options.directory) / "blocks";
  const std::string directory = std::filesystem::is_directory(inner) ? inner.string() : options.directory;
  const auto report = store::inspect_drive(**backend, directory, inspect);
  if (!report.ok()) return fail(report.error());
  if (options.json) {
    fmt::print("{}\n", to_json(to_json_value(*report)));
  } else if (task == KvTask::kStat) {
    print_stat(*report);
    print_damage(*report);
  } else if (task == KvTask::kCheck) {
    print_damage(*report);
    fmt::print("{} records in {} segments, {} damaged places\n", report->records, report->segments.size(),
               report->damage.size());
  }
  if (report->damage.empty()) return kExitOk;
  if (task == KvTask::kDump)
    fmt::print(stderr, "deepinfer: {} damaged places, see `deepinfer kv check`\n", report->damage.size());
  return kExitFailed;
}

}  // namespace

Command add_kv_command(CLI::App& program) {
  auto options = std::make_shared<KvOptions>();
  CLI::App* parser = program.add_subcommand("kv", "look into a directory of the KV store");
  parser->footer(kKvExamples);
  parser->require_subcommand(1);
  const auto add = [&](const char* name, const char* what, bool json) {
    CLI::App* task = parser->add_subcommand(name, what);
    task->add_option("DIR", options->directory, "directory of serve --kv-dir, or of one drive")->required();
    if (json) task->add_flag("--json", options->json, "print one JSON object");
    return task;
  };
  const CLI::App* check = add("check", "read and check every record; names each damaged one", true);
  const CLI::App* stat = add("stat", "segments, classes and domains, from footers", true);
  add("dump", "one JSON line a record, without payloads", false);
  return {parser, [options, check, stat] {
            return run_kv(*options, check->parsed()  ? KvTask::kCheck
                                    : stat->parsed() ? KvTask::kStat
                                                     : KvTask::kDump);
          }};
}

}  // namespace deepinfer
