#include "gateway/core.h"

#include <openssl/evp.h>

#include "api/messages_response.h"
#include "base/log.h"
#include "gateway/constraint.h"

namespace deepinfer {
namespace {

std::string sha256(const std::string& text) {
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), &size, EVP_sha256(),
             nullptr);
  digest.resize(size);
  return digest;
}

// The tenant of an API key: its name is not secret, and the key cannot be derived from it.
std::string tenant_of(const std::string& api_key) {
  if (api_key.empty()) return "default";
  std::string name = "key-";
  for (const char byte : sha256("tenant " + api_key).substr(0, 8)) {
    name += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return name;
}

// Control tokens that a grammar can spell: the mark of tool calls.
std::vector<TokenId> text_tokens(const Tokenizer& tokenizer) {
  const auto mark = tokenizer.id_of_added(call_markup().mark);
  return mark ? std::vector<TokenId>{*mark} : std::vector<TokenId>();
}

WebPolicy web_policy_of(const GatewayOptions& options) {
  WebPolicy policy;
  policy.hosts = options.allow_hosts;
  if (!options.http.host.empty()) policy.hosts.push_back(options.http.host);
  policy.allow_origin = options.allow_origin;
  policy.checks_hosts = options.api_key.empty();
  return policy;
}

std::optional<Protocol> protocol_of(const HttpRequest& request) {
  if (request.method != "POST") return std::nullopt;
  const std::string_view path = plain_path(request.path);
  if (path == "/chat/completions") return Protocol::kChat;
  if (path == "/responses") return Protocol::kResponses;
  if (path == "/messages") return Protocol::kMessages;
  if (path == "/completions") return Protocol::kCompletions;
  return std::nullopt;
}

}  // namespace

GatewayCore::GatewayCore(GatewayOptions options, GatewayParts parts, std::vector<TokenId> stop_ids,
                         std::unique_ptr<ResponseStore> responses, std::string secret)
    : options_(std::move(options)),
      web_policy_(web_policy_of(options_)),
      fair_share_(options_.running_answers, options_.waiting_answers),
      reasoning_memory_(options_.max_reasoning_memory_bytes),
      service_{.parts = std::move(parts),
               .served_model_name = options_.served_model_name,
               .system_fingerprint = options_.system_fingerprint,
               .context_mode = options_.context_mode,
               .tenant = tenant_of(options_.api_key),
               .stop_ids = std::move(stop_ids),
               .keep_alive_interval = options_.keep_alive_interval,
               .max_unsent_bytes = options_.max_unsent_bytes,
               .metrics = &metrics_,
               .fair_share = &fair_share_,
               .prompt_format = options_.prompt_format,
               .long_answer = options_.strict_max_tokens ? LongAnswer::kRefuse : LongAnswer::kClamp,
               .reasoning_memory = &reasoning_memory_,
               .longest_token_bytes = longest_token_bytes(service_.parts.tokenizer)},
      grammars_(std::make_unique<GrammarCompiler>(service_.parts.tokenizer,
                                                  service_.parts.tokens.vocab_size(), service_.stop_ids,
                                                  text_tokens(service_.parts.tokenizer),
                                                  GrammarOptions{.worker = options_.grammar_worker})),
      started_at_(now_s()),
      responses_(std::move(responses)),
      sealer_(std::move(secret)),
      owner_(sha256(options_.api_key)) {}

int64_t GatewayCore::now_s() const {
  const auto now = service_.parts.clock.wall_now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

void GatewayCore::respond_json(const ExchangePtr& exchange, std::string body, int status) const {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  exchange->respond(std::move(response));
}

HttpResponse GatewayCore::refusal(const HttpRequest& request, const ApiError& error, const std::string& id) {
  if (const auto protocol = protocol_of(request)) metrics_.on_refused(*protocol);
  const bool messages = is_messages_path(request.path);
  HttpResponse response;
  response.status = messages ? messages_http_status(error) : error.http_status;
  response.body = messages ? to_messages_json(error, id) : to_json(error);
  return response;
}

std::string GatewayCore::metrics_text() const {
  return metrics_.text(service_.parts.tokens.stats(), grammars_->stats(), http_stats_());
}

std::string GatewayCore::new_id(std::string_view prefix) const {
  const auto& random = service_.parts.random;
  return fmt::format("{}{:016x}{:016x}", prefix, random(), random());
}

AnswerIdentity GatewayCore::new_identity(std::string_view id_prefix, const GenerationRequest& request) const {
  AnswerIdentity identity;
  identity.id = new_id(id_prefix);
  identity.created = now_s();
  identity.model = service_.served_model_name;
  const ContextMode mode = request.context_mode.value_or(service_.context_mode);
  identity.system_fingerprint = fmt::format("{}-{}", service_.system_fingerprint, context_mode_name(mode));
  identity.call_id_key = service_.parts.random();
  return identity;
}

void GatewayCore::constrain(const ExchangePtr& exchange, const GenerationRequest& request,
                            std::function<void(std::shared_ptr<const OutputConstraint>, bool)> then) {
  Result<ConstraintPlan> plan =
      plan_constraint(request, tokenizer(), service_.stop_ids, grammars_->vocab_size(), service_.prompt_format);
  if (!plan.ok()) return refuse(exchange, plan.error());
  if (!plan->constrains()) return then(nullptr, false);
  if (!plan->spec) return then(make_constraint(std::move(plan->shape), grammars_->vocab_size()), false);

  struct Asked {  // of the strand, shared by the two callbacks
    bool is_gone = false;
    uint64_t compilation = 0;
  };
  const auto asked = std::make_shared<Asked>();
  exchange->on_closed([this, asked] {
    asked->is_gone = true;
    grammars_->cancel(asked->compilation);
  });
  auto go_on = [this, exchange, asked, then = std::move(then),
                shape = std::move(plan->shape)](const GrammarCompiler::Compiled& compiled) mutable {
    if (asked->is_gone) return;
    exchange->on_closed(nullptr);
    if (!compiled.ok()) return refuse(exchange, compiled.error());
    shape.grammar = *compiled;
    then(make_constraint(std::move(shape), grammars_->vocab_size()), true);
  };
  asked->compilation = grammars_->compile(
      *plan->spec, [exchange, go_on = std::move(go_on)](GrammarCompiler::Compiled compiled) mutable {
        exchange->post_work([go_on = std::move(go_on), compiled = std::move(compiled)]() mutable { go_on(compiled); });
      },
      exchange->request().peer);
}

std::shared_ptr<AnswerSession> GatewayCore::run(const ExchangePtr& exchange, AnswerJob job,
                                                const std::string& name) {
  if (stopping_) {
    refuse(exchange, Error(Code::kUnavailable, "The server is stopping."));
    return nullptr;
  }
  if (const int restored = reasoning_memory_.restore(job.request.conversation); restored > 0) {
    exchange->add_header("x-ds-reasoning-restored", std::to_string(restored));
  }
  if (!name.empty()) job.on_over = [this, name] { forget_running(name); };
  auto session = std::make_shared<AnswerSession>(service_, exchange, std::move(job));
  if (!name.empty()) {  // before its client can know the name
    const std::lock_guard lock(mu_);
    named_[name] = session;
  }
  if (const auto refusal = session->begin()) {
    refuse(exchange, *refusal);
    return nullptr;
  }
  const std::lock_guard lock(mu_);
  if (sessions_.size() >= sweep_at_) {
    std::erase_if(sessions_, [](const auto& weak) { return weak.expired(); });
    sweep_at_ = std::max<size_t>(64, 2 * sessions_.size());
  }
  sessions_.push_back(session);
  if (stopping_) session->interrupt();  // it came while stop() ran
  return session;
}

// A full disk fails every request: one line when it begins, one when it is over.
bool GatewayCore::kept(const Status& done) {
  const bool fails = !done.ok() && done.error().code() == Code::kIo;
  if (fails && !store_fails_.exchange(true)) {
    log::warn("responses are not stored from here on: {}", done.error().message());
  }
  if (done.ok() && store_fails_.exchange(false)) log::warn("responses are stored again");
  return done.ok();
}

void GatewayCore::forget_running(const std::string& name) {
  const std::lock_guard lock(mu_);
  named_.erase(name);
}

bool GatewayCore::cancel(const std::string& name, std::function<void()> then) {
  std::shared_ptr<AnswerSession> session;
  {
    const std::lock_guard lock(mu_);
    const auto found = named_.find(name);
    if (found != named_.end()) session = found->second.lock();
  }
  if (!session) return false;
  session->cancel(std::move(then));
  return true;
}

void GatewayCore::stop() {
  stopping_ = true;
  {
    const std::lock_guard lock(mu_);
    for (const auto& weak : sessions_) {
      if (const auto session = weak.lock()) session->interrupt();
    }
  }
  grammars_->stop();
}

std::string_view plain_path(std::string_view path) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : {"/v1/", "/beta/", "/anthropic/"}) {
      if (!path.starts_with(prefix)) continue;
      path.remove_prefix(prefix.size() - 1);
      again = true;
    }
  }
  return path;
}

bool is_messages_path(std::string_view path) {
  const std::string_view plain = plain_path(path);
  return plain == "/messages" || plain.starts_with("/messages/") || path.starts_with("/anthropic/");
}

}  // namespace deepinfer
