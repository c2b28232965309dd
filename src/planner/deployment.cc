// A deployment for given traffic: cards, store, latency, money.
#include "planner/planner.h"

namespace deepinfer::planner {
namespace {

constexpr char kYours[] = "your traffic";
constexpr char kHardware[] = "of the hardware profile";
constexpr char kModel[] = "of the model";

struct Deployment {
  explicit Deployment(Model& m) : m(m) {}
  Model& m;

  Term<RequestsPerSecond> requests =
      (m.group("Traffic"), m.input("requests", "Requests", 50, kRequestsPerSecond, {1, 1000, kYours}));
  Term<TokensPerRequest> input_tokens =
      m.input("input", "Input of a request, mean", 12000, kTokensPerRequest, {500, 100000, kYours});
  Term<TokensPerRequest> long_input =
      m.input("long_input", "Input of a long request (99th percentile)", 85000, kTokensPerRequest, {1000, 1e6, kYours});
  Term<TokensPerRequest> output_tokens =
      m.input("output", "Output of a request, mean", 350, kTokensPerRequest, {50, 5000, kYours});
  Term<Pure> hit =
      m.input("hit", "Input found in the cache", 60, kPercent, {0, 98, kYours, kMediumConfidence, Bound::kFraction});
  Term<UserSpeed> user_speed = m.input("user_speed", "Speed wanted for an answer", 20, kUserSpeed, {2, 250, kYours});
  Term<Pure> utilisation =
      m.input("utilisation", "Mean load of the cards against their peak", 82, kPercent,
              {40, 95, "226.75 of 278 nodes in 2025 (open-infra-index, day 6)", kMediumConfidence, Bound::kFraction});

  Term<CardRate> prefill_rate =
      (m.group("Hardware"), m.input("prefill_rate", "Input tokens of a prefill card, hits included", 1.5e6, kCardRate,
                                    {1e3, 3e6, kHardware, kMediumConfidence}));
  Term<CardRate> miss_rate = m.input("miss_rate", "Input tokens that a prefill card computes", 6e4, kCardRate,
                                     {10, 1e5, kHardware, kMediumConfidence});
  Term<CardRate> decode_rate = m.input("decode_rate", "Output tokens of a decode card", 1.4e4, kCardRate,
                                       {1, 3e4, kHardware, kMediumConfidence});
  Term<UserSpeed> speed_at_rate = m.input("speed_at_rate", "Speed of an answer at that rate", 230, kUserSpeed,
                                          {1, 300, kHardware, kMediumConfidence});
  Term<TokensPerRequest> tokens_per_step = m.input("tokens_per_step", "Tokens of an answer that a step brings", 3.51,
                                                   kTokensPerRequest, {1, 6, "five drafts, thinking on (InferenceX)"});
  Term<Cards> prefill_unit =
      m.input("prefill_unit", "Cards of a prefill unit", 8, kCards, {1, 32, kHardware, kLowConfidence});
  Term<Cards> decode_unit =
      m.input("decode_unit", "Cards of a decode unit", 64, kCards, {1, 128, kHardware, kMediumConfidence});
  Term<BytesPerSecond> link =
      m.input("link", "Link of a decode unit", 25, kGigabytesPerSecond, {1, 400, "200 Gbit/s", kMediumConfidence});

  Term<Seconds> chat_days =
      (m.group("KV store"), m.input("chat_days", "Retention, chat", 3, kDays,
                                    {0, 30, "published: about 72 h", kMediumConfidence, Bound::kNotNegative}));
  Term<Seconds> agent_days = m.input("agent_days", "Retention, agents", 7, kDays,
                                     {0, 60, "published: 7 days", kMediumConfidence, Bound::kNotNegative});
  Term<Pure> agent_share =
      m.input("agent_share", "New tokens of agents", 30, kPercent, {0, 100, kYours, kLowConfidence, Bound::kFraction});
  Term<TokenSize> kv_bytes = m.input("kv_bytes", "KV of a token", 890, kBytesPerToken, {890, 3200, kModel});
  Term<Bytes> block_bytes = m.input("block_bytes", "Bytes of a stored block", 112, kKibibytes, {112, 400, kModel});
  Term<Tokens> block_tokens = m.input("block_tokens", "Tokens of a block", 128, kTokens, {128, 128, kModel});
  Term<Pure> copies = m.input("copies", "Copies of a block", 2, kTimes, {1, 3, "1 when the machines share no store"});
  Term<Pure> fill = m.input("fill", "Fill of the drives", 80, kPercent,
                            {50, 95, "segments and the writer's slack", kMediumConfidence, Bound::kFraction});
  Term<Bytes> drive_size = m.input("drive_size", "Size of a drive", 7.68, kTerabytes, {0.9, 61, kHardware});
  Term<BytesPerSecond> drive_read =
      m.input("drive_read", "Read of a drive", 6, kGigabytesPerSecond, {1, 14, kHardware, kMediumConfidence});
  Term<BytesPerSecond> drive_write = m.input("drive_write", "Write of a drive, for hours", 2, kGigabytesPerSecond,
                                             {0.3, 8, kHardware, kLowConfidence});
  Term<Pure> peak_reads = m.input("peak_reads", "Peak reads against the mean", 4, kTimes,
                                  {1, 10, "published peaks are 7 times the mean derived", kLowConfidence});
  Term<Bytes> index_entry = m.input("index_entry", "Index memory of a block", 14, kBytes,
                                    {12, 64, "12 bytes at 90 % load (src/store/log/index.h)"});
  Term<Bytes> window_bytes =
      m.input("window_bytes", "Window state of an answer", 2.9, kMegabytes, {1.5, 3.2, "128 rows x 43 layers x 528 B"});
  Term<Seconds> window_life = m.input("window_life", "Time a window state is kept", 180, kSeconds,
                                      {30, 1800, "published: about 3 min", kMediumConfidence});
  Term<Pure> window_hit =
      m.input("window_hit", "Window states found", 70, kPercent,
              {50, 99, "64 to 78 % at 180 s in public traces; published: 98 %", kLowConfidence, Bound::kFraction});
  Term<TokensPerRequest> replay =
      m.input("replay", "Tokens run again for a lost window", 128, kTokensPerRequest, {128, 2560, kModel});
  Term<Seconds> lookup_time = m.input("lookup_time", "Look-up and first byte of the store", 1, kMilliseconds,
                                      {0.1, 20, "0.2 ms measured on NVMe, the rest for the network", kLowConfidence});

  Term<TokenPrice> price_hit = (m.group("Money"), m.input("price_hit", "Price of input found in the cache", 0.003,
                                                          kDollarsPerMillion, {0.001, 0.5, "price list of the API"}));
  Term<TokenPrice> price_miss =
      m.input("price_miss", "Price of input computed", 0.15, kDollarsPerMillion, {0.05, 5, "price list of the API"});
  Term<TokenPrice> price_output =
      m.input("price_output", "Price of output", 0.6, kDollarsPerMillion, {0.2, 20, "price list of the API"});
  Term<Pure> peak_share = m.input("peak_share", "Hours at peak price", 3500.0 / 168, kPercent,
                                  {0, 50, "35 of the 168 hours of a week", Confidence::kHigh, Bound::kFraction});
  Term<Pure> peak_factor =
      m.input("peak_factor", "Peak price against the other", 2, kTimes, {1, 3, "price list of the API"});
  Term<CardRent> rent =
      m.input("rent", "A card for an hour, all costs", 4, kDollarsPerCardHour, {0.5, 12, kHardware, kLowConfidence});
  Term<CardPrice> card_price =
      m.input("card_price", "Price of a card", 50000, kDollarsPerCard, {5000, 80000, kHardware, kLowConfidence});
  Term<BytePrice> ssd_price =
      m.input("ssd_price", "Price of SSD", 0.5, kDollarsPerGigabyte, {0.05, 1, "bare drives", kLowConfidence});
  Term<Seconds> ssd_life =
      m.input("ssd_life", "Years a drive is written off in", 4, kYears, {2, 7, "usual", kMediumConfidence});
  Term<CardRent> card_hour =
      m.input("card_hour", "Value of a freed card-hour", 4, kDollarsPerCardHour,
              {0, 50, "its rent; what it earns where demand is unmet", kLowConfidence, Bound::kNotNegative});
  Term<Seconds> extra_days =
      m.input("extra_days", "More retention to look at", 4, kDays, {1, 30, "published: 3 to 7 days"});
  Term<Pure> extra_hit = m.input("extra_hit", "Hit rate they bring", 0.75, kPoints,
                                 {0.1, 3, "published: 0.5 to 1 point for chat", kMediumConfidence, Bound::kFraction});
};

struct Basis {
  Term<TokensPerSecond> input, misses, output;
  Term<Cards> prefill_cards, decode_cards;
  Term<Dollars> store_price;
};

void add_traffic(Deployment& d, Basis& b) {
  Model& m = d.m;
  m.group("Traffic");
  b.input = m.figure("input_rate", "Input", kTokensPerSecond, d.requests * d.input_tokens);
  b.misses = m.figure("miss_tokens", "of it to compute", kTokensPerSecond, b.input * (1 - d.hit));
  b.output = m.figure("output_rate", "Output", kTokensPerSecond, d.requests * d.output_tokens);
  m.figure("request_blocks", "Blocks of a mean input", kNumber,
           d.input_tokens * constant(1, kRequests) / d.block_tokens);
  m.figure("request_kv", "KV of a mean input", kMegabytes, d.input_tokens * constant(1, kRequests) * d.kv_bytes);
  m.figure("answers", "Answers at a time", kRequests, b.output / d.user_speed);
}

void add_cards(Deployment& d, Basis& b) {
  Model& m = d.m;
  m.group("Cards");
  const auto prefill =
      m.figure("prefill_needed", "Prefill cards, before rounding", kCards,
               larger(b.misses / d.miss_rate, b.input / d.prefill_rate) / d.utilisation,
               {.source = "the dearer of computing misses and moving hits", .confidence = kMediumConfidence});
  b.prefill_cards = m.figure("prefill_cards", "Prefill cards", kCards, whole(prefill, d.prefill_unit));
  const auto users = d.decode_rate / d.speed_at_rate;
  const auto decode =
      m.figure("decode_needed", "Decode cards, before rounding", kCards, b.output / d.decode_rate / d.utilisation);
  b.decode_cards = m.figure("decode_cards", "Decode cards", kCards, whole(decode, d.decode_unit));
  m.figure("cards", "Cards", kCards, b.prefill_cards + b.decode_cards);
  m.figure("prefill_units", "Prefill units", kNumber, b.prefill_cards / d.prefill_unit);
  m.figure("decode_units", "Decode units", kNumber, b.decode_cards / d.decode_unit);
  m.figure("prefill_load", "Mean load of the prefill cards", kPercent, prefill * d.utilisation / b.prefill_cards);
  m.figure("decode_load", "Mean load of the decode cards", kPercent, decode * d.utilisation / b.decode_cards);
  m.figure("answers_per_card", "Answers at a time on a decode card", kRequestsPerCard,
           b.output / d.speed_at_rate / b.decode_cards, {.source = "at the speed of the profile"});
  m.figure("answers_limit", "Answers a decode card was measured with", kRequestsPerCard, users);
  const auto room =
      m.figure("speed_room", "Speed of an answer against what is wanted", kTimes, d.speed_at_rate / d.user_speed);
  m.note(1 - room,
         "answers reach {speed_at_rate}, less than the {user_speed} wanted: at a higher speed a card serves fewer "
         "answers than this plan assumes");
  m.note(0.6 - prefill / b.prefill_cards,
         "prefill needs {prefill_needed} but comes in units of {prefill_unit}: most would idle; a smaller unit, or one "
         "that does both, is cheaper");
  m.note(0.6 - decode / b.decode_cards,
         "decode needs {decode_needed} but comes in units of {decode_unit}: most would idle; a smaller unit, or one "
         "that does both, is cheaper");
  m.figure(
      "cards_without_cache", "Cards without a cache", kCards,
      whole(larger(b.input / d.miss_rate, b.input / d.prefill_rate) / d.utilisation, d.prefill_unit) + b.decode_cards);
}

void add_store(Deployment& d, Basis& b) {
  Model& m = d.m;
  m.group("KV store");
  const auto made = m.figure("new_kv", "New KV", kGigabytesPerSecond, (b.misses + b.output) * d.kv_bytes);
  const auto kept = made * (d.agent_share * d.agent_days + (1 - d.agent_share) * d.chat_days);
  const auto chat =
      m.figure("store_chat", "Kept for chat", kTerabytes, made * (1 - d.agent_share) * d.chat_days * d.copies / d.fill);
  const auto agents =
      m.figure("store_agents", "Kept for agents", kTerabytes, made * d.agent_share * d.agent_days * d.copies / d.fill);
  const auto size = m.figure("store_size", "SSD", kTerabytes, chat + agents);
  const auto reads =
      m.figure("store_reads", "Reads", kGigabytesPerSecond, b.input * d.hit * (d.block_bytes / d.block_tokens));
  m.figure("block_reads", "Blocks read", kReadsPerSecond, reads / d.block_bytes);
  const auto writes = m.figure("store_writes", "Writes", kGigabytesPerSecond, made * d.copies);
  const auto drives = m.figure(
      "drives", "Drives", kNumber,
      ceiling(larger(larger(size / d.drive_size, reads * d.peak_reads / d.drive_read), writes / d.drive_write)),
      {.source = "the most of size, reads at their peak, and writes"});
  m.figure("drives_per_card", "Drives a card", Measure<Quotient<Pure, Cards>>{"drives/card", 1},
           drives / (b.prefill_cards + b.decode_cards));
  const auto entries = m.figure("index_entries", "Blocks in the index", kMillions, kept / d.kv_bytes / d.block_tokens);
  m.figure("index_memory", "Memory of the index", kGigabytes, entries * d.index_entry);
  m.figure("window_memory", "Memory of window states", kGigabytes,
           d.requests * constant(1, Measure<Quotient<Pure, Requests>>{"/request", 1}) * d.window_life * d.window_bytes,
           {.source = "a state kept at the end of each answer"});
  b.store_price = m.figure("store_price", "Price of the drives", kDollars, drives * d.drive_size * d.ssd_price);
  const auto link = m.figure("decode_link", "KV to a decode unit", kGigabytesPerSecond,
                             b.input * d.kv_bytes * (d.decode_unit / b.decode_cards));
  m.note(link / d.link - 0.7, "a decode unit receives {decode_link} of KV over a link of {link}: plan a faster one");
}

void add_latency(Deployment& d, Basis& b) {
  Model& m = d.m;
  m.group("Latency");
  const auto step = m.figure("step_time", "A decode step", kMilliseconds, d.tokens_per_step / d.speed_at_rate);
  const auto unit_rate = d.miss_rate * d.prefill_unit;
  const auto rows = [&](const Term<TokensPerRequest>& input) {
    return input * (1 - d.hit) + d.replay * (1 - d.window_hit) * d.hit;
  };
  const auto one = constant(1, kRequests);
  const auto prefill =
      m.figure("prefill_time", "Prefill of a mean request", kMilliseconds, rows(d.input_tokens) * one / unit_rate);
  const auto long_prefill =
      m.figure("prefill_time_long", "Prefill of a long request", kMilliseconds, rows(d.long_input) * one / unit_rate);
  const auto busy = (b.misses / d.miss_rate) / b.prefill_cards;
  const auto queue = m.figure(
      "queue_time", "Wait for a prefill unit", kMilliseconds,
      prefill * busy / (2 * (1 - smaller(busy, number(0.98)))) / (b.prefill_cards / d.prefill_unit),
      {.source = "one queue of even arrivals over all units; bursts make it longer", .confidence = kLowConfidence});
  const auto hit_bytes = [&](const Term<TokensPerRequest>& input) {
    return input * one * d.hit * (d.block_bytes / d.block_tokens);
  };
  const auto wait = [&](const Term<TokensPerRequest>& input, const Term<Seconds>& prefill_time) {
    return queue + d.lookup_time + hit_bytes(input) / d.drive_read + prefill_time + input * one * d.kv_bytes / d.link +
           step;
  };
  m.figure("ttft", "First token of a mean request", kMilliseconds, wait(d.input_tokens, prefill),
           {.source = "queue, look-up, load of hits from one drive, prefill, hand-over, one step",
            .confidence = kLowConfidence});
  m.figure("ttft_long", "First token of a long request", kMilliseconds, wait(d.long_input, long_prefill),
           {.confidence = kLowConfidence});
  m.figure("tbt", "Time between tokens", kMilliseconds, constant(1, kTokensPerRequest) / d.speed_at_rate);
  m.figure("answer_time", "Whole answer, mean", kSeconds,
           wait(d.input_tokens, prefill) + d.output_tokens / d.speed_at_rate, {.confidence = kLowConfidence});
}

void add_money(Deployment& d, Basis& b) {
  Model& m = d.m;
  m.group("Money");
  const auto prefill_cost = m.figure("prefill_cost", "Prefill", kDollarsPerHour, b.prefill_cards * d.rent);
  const auto decode_cost = m.figure("decode_cost", "Decode", kDollarsPerHour, b.decode_cards * d.rent);
  const auto store_cost = m.figure("store_cost", "Store", kDollarsPerHour, b.store_price / d.ssd_life);
  const auto cost = m.figure("cost", "Cost", kDollarsPerHour, prefill_cost + decode_cost + store_cost);
  m.figure("cost_miss", "Cost of input computed", kDollarsPerMillion, d.rent / d.miss_rate / d.utilisation,
           {.source = "rent over rate and load"});
  m.figure("cost_output", "Cost of output", kDollarsPerMillion, d.rent / d.decode_rate / d.utilisation);
  m.figure("cost_input", "Cost of input, all of it", kDollarsPerMillion, (prefill_cost + store_cost) / b.input);
  m.figure("cost_token", "Cost of a token, all of them", kDollarsPerMillion, cost / (b.input + b.output));
  const auto weight = 1 + d.peak_share * (d.peak_factor - 1);
  const auto revenue =
      m.figure("revenue", "Revenue at the price list", kDollarsPerHour,
               (b.input * d.hit * d.price_hit + b.misses * d.price_miss + b.output * d.price_output) * weight);
  const auto margin = m.figure("margin", "Revenue over cost", kTimes, revenue / cost);
  m.note(1 - margin, "at the price list this earns {margin} its cost");
  m.group("Payback of retention");
  const auto extra_size =
      m.figure("extra_ssd", "SSD for more days of chat", kTerabytes,
               (b.misses + b.output) * d.kv_bytes * (1 - d.agent_share) * d.extra_days * d.copies / d.fill);
  const auto extra_price = m.figure("extra_price", "its price", kDollars, extra_size * d.ssd_price);
  const auto freed =
      m.figure("freed_cards", "Prefill cards freed", kCards, d.extra_hit * b.input / d.miss_rate / d.utilisation);
  const auto worth = m.figure("freed_value", "their value", kDollarsPerHour, freed * d.card_hour);
  const auto lost = m.figure("lost_revenue", "Revenue lost, hits instead of misses", kDollarsPerHour,
                             d.extra_hit * b.input * (d.price_miss - d.price_hit) * weight);
  m.note(1 - worth / lost,
         "more retention loses {lost_revenue} when tokens are sold at the price list (hits are cheaper than misses); "
         "it pays from {worth_threshold} on");
  m.figure("gain_own", "Gain when you pay for the cards yourself", kDollarsPerHour, worth);
  m.figure("gain_sold", "Gain when tokens are sold at the price list", kDollarsPerHour, worth - lost);
  m.figure("payback_own", "Payback, your own use", kYears, extra_price / worth,
           {.source = "infinite or negative: never"});
  m.figure("payback_sold", "Payback, sold at the price list", kYears, extra_price / (worth - lost),
           {.source = "negative: never"});
  m.figure("worth_threshold", "Value of a card-hour from which it pays when sold", kDollarsPerCardHour,
           d.miss_rate * (d.price_miss - d.price_hit) * weight * d.utilisation);
}

}  // namespace

const Model& deployment_model() {
  static const Model model = [] {
    Model m("deployment", "Your deployment");
    Deployment inputs(m);
    Basis basis;
    add_traffic(inputs, basis);
    add_cards(inputs, basis);
    add_store(inputs, basis);
    add_latency(inputs, basis);
    add_money(inputs, basis);
    return m;
  }();
  return model;
}

std::vector<const Model*> all_models() {
  return {&production_model(), &deployment_model(), &machine_model()};
}

}  // namespace deepinfer::planner
