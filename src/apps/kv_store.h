// The KV store of a served model: its flags, its identity, its key.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "store/store.h"
#include "store/tiers/tier.h"

namespace deepinfer {

struct KvStoreFlags {
  std::vector<std::string> directories;  // one a drive; none: no store
  uint64_t size_bytes = 20ull << 30;     // of all together
  std::string key_file;                  // empty: master.key in every directory
  bool encrypt = false;
  bool windows = true;        // window states are kept there, too
  bool required = false;      // no service without the store
  bool read_only = false;
  uint64_t write_budget = 0;  // bytes a day and drive; 0: none
  std::string remote;  // address of a tier behind the store (store/tiers/tier.h); empty: none
};

void add_kv_store_flags(CLI::App& parser, KvStoreFlags& flags);

// Everything that changes the bytes of a block, as one digest; `remembered` as in checkpoint_digest().
Result<Digest> block_fingerprint(const Checkpoint& checkpoint, std::string_view summation_order, int threads,
                                        const std::vector<std::string>& remembered);

struct OpenedKvStore {
  std::unique_ptr<store::IoBackend> backend;
  std::optional<kv_tier> raw_tier;           // while it is opened
  std::unique_ptr<store::GuardedTier> tier;  // null: none
  std::unique_ptr<store::Store> store;  // null: none was asked for, or it can't be had now (said in the log)
  std::string state = "off";            // why there is none
};
// Wrong flags are errors. A directory that another process uses or that can't be read, a key that is damaged or not there, a
// tier that does not answer: they cost the store or the tier, not the service, unless `required` says so.
// Digests of weights that were taken for a weights cache (a directory, or empty) are taken over.
Result<OpenedKvStore> open_kv_store(const KvStoreFlags& flags, const std::string& model_directory, const Model& model,
                                    const std::string& weights_cache_directory = {});

}  // namespace deepinfer
