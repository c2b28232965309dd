// The public face: checks requests, names their prefixes, and hands them to the engine thread.
#include "engine/engine.h"

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "cache/keys.h"
#include "engine/executor.h"
#include "engine/inbox.h"
#include "engine/loop.h"
#include "engine/memory_plan.h"
#include "engine/stats.h"
#include "engine/store_queue.h"
#include "model/model.h"
#include "model/sequence_state.h"

namespace deepinfer {
namespace {

static_assert(std::endian::native == std::endian::little, "prefix keys hash tokens as little-endian words");

int64_t max_running_of(const EngineOptions& options, const Model& model) {
  return planned_max_running(model.options(), options);
}

LoopShape shape_of(const EngineOptions& options, const Model& model, const Executor& executor) {
  return {
      .max_context = model.options().max_context_tokens,
      .max_rows = model.options().max_batch_tokens,
      .num_blocks = static_cast<int64_t>(model.memory_plan().kv_blocks),
      .num_states = model.options().max_sequences,
      .max_running = max_running_of(options, model),
      .swap_blocks = executor.num_swap_blocks(),
      .swap_states = executor.num_swap_states(),
      .windows = model.windows(),
      .max_drafts = options.speculation.fixed_drafts == 0 ? 0 : std::min(executor.max_drafts(), kMaxDrafts),
      .keeps_history = executor.wants_history()};
}

int64_t swap_blocks_of(const EngineOptions& options, const Model& model) {
  return planned_swap_blocks(model.memory_plan(), options);
}

}  // namespace

struct Engine::Impl {
  std::unique_ptr<Model> model;
  const EngineOptions options;
  const Clock& clock;
  Counter& count_requests;
  Executor executor;
  const LoopShape shape;
  Inbox<LoopMessage> inbox;
  std::atomic<int64_t> queued{0};   // answers not admitted yet; a count of its own, orders nothing
  std::atomic<RequestId> next_id{1};
  StatsBoard board;
  std::unique_ptr<StoreQueue> store;
  EngineLoop loop;
  std::jthread thread;              // last member: joined before the rest goes

  Impl(std::unique_ptr<Model> model_in, EngineOptions options_in, Counters& counters)
      : model(std::move(model_in)),
        options(std::move(options_in)),
        clock(options.clock != nullptr ? *options.clock : system_clock()),
        count_requests(counters.get("requests")),
        executor(*model, options, swap_blocks_of(options, *model), max_running_of(options, *model)),
        shape(shape_of(options, *model, executor)),
        store(make_store_queue()),
        loop(shape, options, executor, inbox, queued, board, counters, store.get(), state_bytes()),
        thread([this] { loop.run(); }) {}

  std::unique_ptr<StoreQueue> make_store_queue();
  StateBytes state_bytes() const;
  void name_prefix(Submission& submission);
  Status check(const EngineRequest& request) const;
  Status check_memory(const EngineRequest& request) const;
};

Engine::Engine(std::unique_ptr<Model> model, EngineOptions options, Counters& counters)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(options), counters)) {}

Engine::~Engine() {
  impl_->inbox.push({.kind = LoopMessage::Kind::kStop, .submission = {}});
  impl_->thread.join();
  impl_->store.reset();  // its threads read the model's blocks
}

int64_t Engine::max_context_tokens() const { return impl_->shape.max_context; }
int64_t Engine::vocab_size() const { return impl_->model->config().vocab_size; }

Status Engine::Impl::check(const EngineRequest& request) const {
  const auto prompt = std::ssize(request.prompt_ids);
  const int64_t vocab = model->config().vocab_size;
  if (prompt == 0) return Error(Code::kInvalidArgument, "prompt_ids: found none, expected at least one");
  if (prompt >= shape.max_context) {
    return Error(Code::kInvalidArgument,
                 "prompt_ids: found {} tokens, expected at most {}: the context holds {}", prompt,
                 shape.max_context - 1, shape.max_context);
  }
  for (const int32_t id : request.prompt_ids) {
    if (id < 0 || id >= vocab) {
      return Error(Code::kInvalidArgument, "prompt_ids: found {}, expected 0 to {}", id, vocab - 1);
    }
  }
  if (request.max_tokens < 1) {
    return Error(Code::kInvalidArgument, "max_tokens: found {}, expected at least 1", request.max_tokens);
  }
  if (request.n < 1) return Error(Code::kInvalidArgument, "n: found {}, expected at least 1", request.n);
  if (request.priority < 0 || request.priority >= kNumPriorities) {
    return Error(Code::kInvalidArgument, "priority: found {}, expected 0 to {}", request.priority, kNumPriorities - 1);
  }
  RETURN_IF_ERROR(check_sampling_params(request.sampling));
  return check_memory(request);
}

// What could never run, even alone, is refused at the door.
Status Engine::Impl::check_memory(const EngineRequest& request) const {
  const auto prompt = std::ssize(request.prompt_ids);
  const int64_t limit = std::min(request.max_tokens, shape.max_context - prompt);
  const int64_t needed = std::max(blocks_for(prompt + limit), blocks_for(prompt) + std::min<int64_t>(request.n, shape.max_running) - 1);
  if (needed > shape.num_blocks) {
    return Error(Code::kInvalidArgument,
                 "prompt_ids: {} tokens and {} new ones need {} KV blocks of {} tokens, the pool has {}", prompt, limit,
                 needed, kBlockTokens, shape.num_blocks);
  }
  return {};
}

std::unique_ptr<StoreQueue> Engine::Impl::make_store_queue() {
  if (options.store == nullptr || !options.prefix_cache) return nullptr;
  CHECK(options.store->geometry().payload_bytes == model->memory_plan().kv_block_bytes);
  auto queue = std::make_unique<StoreQueue>(
      *options.store, options.store_tier, clock, [this](BlockId block) { return model->block_bytes(block); },
      [this](StoreTaskPtr task) {
        inbox.push({.kind = LoopMessage::Kind::kStore, .submission = {}, .task = std::move(task)});
      });
  return queue;
}

StateBytes Engine::Impl::state_bytes() const {
  const KvLayout& layout = model->layout();
  const auto state = [this](StateId id) -> Sequence& { return model->state(static_cast<int64_t>(id)); };
  return {.window_bytes = serialized_state_bytes(
              layout, {.position = layout.window, .encoder_rows = layout.window - 1}),
          .write =
              [&layout, state](StateId from, const StateExtent& extent, std::vector<std::byte>& to) {
                to.resize(static_cast<size_t>(serialized_state_bytes(layout, extent)));
                serialize_state(layout, state(from), extent, to);
              },
          .read = [&layout, state](std::span<const std::byte> from, StateId to) {
            return restore_state(layout, from, state(to));
          }};
}

// Keys of the prompt's full blocks: a chain under the tenant's key, from a root that says the salt. A tenant whose domain
// is not to be had uses memory alone, under its name.
void Engine::Impl::name_prefix(Submission& submission) {
  const EngineRequest& request = submission.request;
  Key chain_key = {};
  std::string root = request.cache_salt;
  std::optional<StoreQueue::Tenant> tenant;
  if (store != nullptr) tenant = store->tenant(request.tenant);
  if (tenant) {
    submission.domain = tenant->domain;
    chain_key = tenant->chain_key;
  } else {
    root = fmt::format("{}:{}{}", request.tenant.size(), request.tenant, request.cache_salt);
  }
  ChainHasher& hasher =
      submission.hasher.emplace(chain_key, store != nullptr ? options.store->fingerprint() : Digest{});
  submission.root = hasher.root(as_bytes(root));
  const std::span<const int32_t> tokens(request.prompt_ids);
  for (size_t at = 0; at + kBlockTokens <= tokens.size(); at += kBlockTokens) {
    submission.keys.push_back(hasher.next(at == 0 ? submission.root : submission.keys.back(),
                                          std::as_bytes(tokens.subspan(at, kBlockTokens))));
  }
}

Result<Engine::RequestId> Engine::submit(EngineRequest request, EventSink sink) {
  Impl& impl = *impl_;
  RETURN_IF_ERROR(impl.check(request));
  const int32_t answers = request.n;
  const int64_t before = impl.queued.fetch_add(answers);
  if (before + answers > impl.options.max_queued_requests) {
    impl.queued.fetch_sub(answers);
    return Error(Code::kResourceExhausted, "{} requests are waiting already", before);
  }
  auto submission = std::make_shared<Submission>();
  submission->mode = request.context_mode.value_or(impl.options.context_mode);
  if (request.prompt_logprobs) submission->mode = ContextMode::kExact;  // every row gives some
  submission->decoder_first = first_decoder_row(submission->mode, request.prompt_ids, impl.options.turn_tokens,
                                                impl.shape.windows.decoder_tail);
  // More answers than run at once compute the prompt one by one; none may see what another left.
  submission->use_cache = request.use_cache && impl.options.prefix_cache && answers <= impl.shape.max_running;
  submission->arrival = impl.clock.now();
  submission->request = std::move(request);
  if (submission->use_cache) impl.name_prefix(*submission);
  submission->sink = std::move(sink);
  const RequestId first_id = impl.next_id.fetch_add(static_cast<uint64_t>(answers));
  submission->first_id = first_id;
  impl.count_requests.add();
  impl.inbox.push({.kind = LoopMessage::Kind::kSubmit, .submission = std::move(submission)});
  return first_id;
}

void Engine::cancel(RequestId id) { impl_->inbox.push({.kind = LoopMessage::Kind::kCancel, .id = id, .submission = {}}); }
void Engine::finish(RequestId id) {
  impl_->inbox.push({.kind = LoopMessage::Kind::kFinish, .id = id, .submission = {}});
}
void Engine::pause(RequestId id) { impl_->inbox.push({.kind = LoopMessage::Kind::kPause, .id = id, .submission = {}}); }
void Engine::resume(RequestId id) { impl_->inbox.push({.kind = LoopMessage::Kind::kResume, .id = id, .submission = {}}); }

EngineStats Engine::stats() const {
  EngineStats stats = impl_->board.load();
  stats.waiting = impl_->queued.load() + stats.preempted;
  return stats;
}

std::string Engine::memory_plan() const {
  EngineMemoryPlan plan = plan_engine_memory(impl_->model->memory_plan(), impl_->model->options(), impl_->options);
  plan.swap_bytes = impl_->executor.swap_bytes();  // none when the system refused it
  return plan.text();
}

}  // namespace deepinfer
