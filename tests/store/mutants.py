"""Plants faults in the store one by one and lists those that no test sees.

Usage: mutants.py [NUMBER...]     all of them without numbers; exits with 1 when one survives.

Works on a copy of the tree below build/mutants, so it can run beside a build. Each fault is one replacement of a text that
occurs exactly once (`mutants_test.py` holds that), and is caught when a test program fails.
"""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "build/mutants"
PROGRAMS = {"src/cache": ["cache_test"], "src/store": ["store_test", "store_crash_test"]}

LOG, TIERS, TENANTS = "src/store/log", "src/store/tiers", "src/store/tenants"
MUTANTS = [
    # What a record must be to be believed.
    (f"{LOG}/reader.cc", "if (header.key != expected.key)", "if (false)"),
    (f"{LOG}/reader.cc", "if (header.kind != expected.kind)", "if (false)"),
    (f"{LOG}/reader.cc", "if (header.domain != expected.domain)", "if (false)"),
    (f"{LOG}/reader.cc", "if (expected.block_index && header.block_index != *expected.block_index)", "if (false)"),
    (f"{LOG}/reader.cc", "if (!std::equal(header.fingerprint.begin()", "if (false && !std::equal(header.fingerprint.begin()"),
    (f"{LOG}/reader.cc", "if (payload.ok() && header.lineage != block.lineage)", "if (false)"),
    (f"{LOG}/reader.cc", "RETURN_IF_ERROR(check_place(header, place));", ""),
    (f"{LOG}/format.cc", "sequence != header.sequence)", "false)"),
    (f"{LOG}/format.cc", "if (std::memcmp(trailer.data() + 8, header.key.data(), 8) != 0)", "if (false)"),
    (f"{LOG}/format.cc", "if (!flags_known(flags))", "if (false)"),
    (f"{LOG}/format.cc", "if (slot <= before || slot > segment.geometry.num_slots)", "if (slot > segment.geometry.num_slots)"),
    (f"{LOG}/format.cc", "if (crc != header.entries_crc)", "if (false)"),
    # Encryption.
    (f"{LOG}/writer.cc", "put_le(std::span<std::byte>(nonce), 4, header.sequence);", ""),
    (f"{LOG}/writer.cc", "header.sequence = drive.next_sequence++;", "header.sequence = drive.next_sequence;"),
    (f"{LOG}/store.cc", "++drive.meta.epoch;", ""),
    # Promises and time.
    (f"{LOG}/store.cc", "return use_hour + (own ? info->ttl_hours : 72);", "return use_hour + 72;"),
    (f"{LOG}/store.cc", "if (!promises_.reserve(block.domain, geometry_.slot_bytes, expiry)) {", "if (false) {"),
    (f"{LOG}/store_time.cc", "if (last_ms_ != 0 && wall + kStepBackMs < expected) {", "if (false) {"),
    (f"{LOG}/store_time.cc", "return std::min(wall, update(wall));", "return update(wall);"),
    (f"{LOG}/reclaim.cc", "if (segment->use != SegmentUse::kSealed || segment->pins > 0) continue;",
     "if (segment->use != SegmentUse::kSealed) continue;"),
    (f"{LOG}/reclaim.cc", "if (promised && segment->newest_expiry >= hour) continue;", ""),
    (f"{LOG}/reader.cc", "promises_.move(domain, geometry_.slot_bytes, expiry_of(domain, entry.retention, before),",
     "if (false) promises_.move(domain, geometry_.slot_bytes, expiry_of(domain, entry.retention, before),"),
    (f"{TENANTS}/promises.cc", "if (domain.bytes + bytes > domain.quota || total_ + bytes > limit_) return false;",
     "if (total_ + bytes > limit_) return false;"),
    # Lineage and objects.
    (f"{LOG}/reader.cc", "} else if (accept == Lineage::kExact && entry->lineage == Lineage::kDerived) {", "} else if (false) {"),
    (f"{LOG}/writer.cc", "if (header.kind == RecordKind::kBlock && existing && existing->lineage == Lineage::kExact &&",
     "if (false && existing && existing->lineage == Lineage::kExact &&"),
    (f"{LOG}/objects.cc", "if (is_present(piece)) return PutResult::kPresent;", ""),
    (f"{LOG}/objects.cc", "mixed |= !object->add(static_cast<uint32_t>(i) + 1, payload);",
     "(void)object->add(static_cast<uint32_t>(i) + 1, payload);"),
    ("src/store/pieces.cc", "if (head_of(bytes_) != head_)", "if (false)"),
    ("src/store/pieces.cc", "|| read_piece_head(payload) != head_) return false;", ") return false;"),
    # Recovery, domains, tiers.
    (f"{LOG}/recovery.cc", "meta->epoch = std::max(meta->epoch, header->generation >> 24);", ""),
    (f"{LOG}/recovery.cc", "if (!header.ok() && header.error().code() == Code::kUnimplemented) {", "if (false) {"),
    (f"{LOG}/recovery.cc", "if (theirs && *theirs > sequence) continue;", ""),
    (f"{LOG}/recovery.cc", "if (!parse_record(slot).ok()) continue;", ""),
    (f"{LOG}/store.cc", "if (num_newest > 0 && table.serial() < serial) continue;", ""),
    (f"{TENANTS}/domains.cc", "++domain->epoch;", ""),
    (f"{TENANTS}/domains.cc", "wipe(domain->secret);", ""),
    (f"{TIERS}/tier.cc", "get_le<uint32_t>(value, 4) == crc32c(value.subspan(8)) &&", ""),
    (f"{TIERS}/tier.cc", "std::equal(keys[i].begin(), keys[i].end(), value.begin() + 8) &&", ""),
    (f"{TIERS}/tier.cc", "if (++failures_ < options_.failures_to_trip) return;", "return;"),
    (f"{TIERS}/tier.cc", "if (state_->finished.wait_for(lock, limit, [&] { return call->done; })) return true;",
     "state_->finished.wait(lock, [&] { return call->done; });\n    if (call->done) return true;"),
    # Names.
    ("src/cache/keys.cc", "{parent, bytes_of(length), tokens, extras}", "{parent, bytes_of(length), tokens, {}}"),
    ("src/cache/keys.cc", '{as_bytes("root"), fingerprint_, extras}', '{as_bytes("root"), fingerprint_, {}}'),
    ("src/cache/keys.cc", "append(identity.weights);", ""),
    ("src/cache/keys.cc", "append(as_bytes(identity.summation_order));", ""),
]


def run(*command):
    return subprocess.run(command, cwd=COPY, capture_output=True, text=True).returncode == 0


def prepare():
    """A copy of the sources that keeps what was built there before."""
    COPY.mkdir(parents=True, exist_ok=True)
    names = ("CMakeLists.txt", "CMakePresets.json", "cmake", "src", "include", "tests", "bench", "examples", "web", "tools",
             "models", "docs")
    subprocess.run(["cp", "-a", *[str(ROOT / name) for name in names], f"{COPY}/"], check=True)
    if not (COPY / ".tools").exists():
        (COPY / ".tools").symlink_to(ROOT / ".tools")
    if not run("cmake", "--preset", "release"):
        raise SystemExit("mutants: cmake failed in build/mutants")


def survives(mutant):
    path, before, after = mutant
    original = (ROOT / path).read_text()
    assert original.count(before) == 1, f"{path}: {original.count(before)} times {before!r}, expected 1"
    programs = next(tests for room, tests in PROGRAMS.items() if path.startswith(room))
    room = path.split("/")[1]
    (COPY / path).write_text(original.replace(before, after))
    try:
        if not run("ninja", "-C", "build/release", *programs):
            return False  # the compiler sees it
        return all(run(f"build/release/src/{room}/{program}", "--gtest_brief=1") for program in programs)
    finally:
        shutil.copyfile(ROOT / path, COPY / path)


def main(numbers):
    prepare()
    survivors = [number for number in numbers if survives(MUTANTS[number])]
    for number in survivors:
        path, before, after = MUTANTS[number]
        print(f"survivor {number}: {path}: {before!r} -> {after!r}")
    print(f"mutants: {len(numbers)} planted, {len(survivors)} not seen")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main([int(one) for one in sys.argv[1:]] or range(len(MUTANTS))))
