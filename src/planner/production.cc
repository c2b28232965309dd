// The published case: figures that were told about the service this model was made for, recomputed. Where they do not
// add up, a finding says so, with the value that other assumptions give.
#include "planner/planner.h"

namespace deepinfer::planner {
namespace {

constexpr char kPrimer[] = "analyst primer on DeepInfer, v1.4, October 2026";
constexpr char kPrices[] = "price list of the API (api-docs.deepseek.com, quick_start/pricing)";
constexpr char kPlaceholder[] = "placeholder of the primer's sliders";

// The inputs, by the names that the formulas use.
struct Production {
  explicit Production(Model& m) : m(m) {}
  Model& m;

  // ---- Rates and cards
  Term<CardRate> prefill_rate =
      (m.group("Rates and cards"), m.input("prefill_rate", "Input tokens of a prefill card, hits included", 1.5e6,
                                           kCardRate, {1e5, 3e6, kPrimer, kMediumConfidence}));
  Term<CardRate> miss_rate = m.input("miss_rate", "Input tokens that a prefill card computes (misses)", 6e4, kCardRate,
                                     {1e4, 1e5, kPrimer, kMediumConfidence});
  Term<CardRate> decode_rate = m.input("decode_rate", "Output tokens of a decode card", 1.4e4, kCardRate,
                                       {2e3, 3e4, kPrimer, kMediumConfidence});
  Term<UserSpeed> user_speed =
      m.input("user_speed", "Speed of an answer, mean", 230, kUserSpeed, {80, 300, kPrimer, kMediumConfidence});
  Term<Pure> prefill_share =
      m.input("prefill_share", "Prefill cards among all", 50, kPercent,
              {40, 60, "told as an equal split; see finding d", kMediumConfidence, Bound::kFraction});
  Term<TokensPerSecond> traffic =
      m.input("traffic", "Tokens served", 155, kTrillionTokensPerDay, {50, 300, kPrimer, kMediumConfidence});
  Term<Cards> configured_cards = m.input("configured_cards", "Cards, as the source rounds them", 2400, kCards,
                                         {2000, 3500, kPrimer, kMediumConfidence});
  Term<Pure> mean_to_peak = m.input(
      "mean_to_peak", "Mean load of the cards against their peak", 82, kPercent,
      {60, 100, "226.75 of 278 nodes in 2025 (open-infra-index, day 6)", Confidence::kMedium, Bound::kFraction});
  // ---- Prices
  Term<TokenPrice> price_hit = (m.group("Prices"), m.input("price_hit", "Price of input found in the cache", 0.003,
                                                           kDollarsPerMillion, {0.001, 0.03, kPrices}));
  Term<TokenPrice> price_miss =
      m.input("price_miss", "Price of input computed", 0.15, kDollarsPerMillion, {0.05, 0.3, kPrices});
  Term<TokenPrice> price_output =
      m.input("price_output", "Price of output", 0.6, kDollarsPerMillion, {0.2, 1.2, kPrices});
  Term<Pure> peak_share = m.input("peak_share", "Hours at peak price", 3500.0 / 168, kPercent,
                                  {0, 50, "35 of the 168 hours of a week", Confidence::kHigh, Bound::kFraction});
  Term<Pure> peak_factor = m.input("peak_factor", "Peak price against the other", 2, kTimes, {1, 3, kPrices});
  Term<CardRent> rent_low =
      m.input("rent_low", "Rent of a card, cheap", 3, kDollarsPerCardHour, {1, 6, kPrimer, kLowConfidence});
  Term<CardRent> rent_high =
      m.input("rent_high", "Rent of a card, dear", 6, kDollarsPerCardHour, {3, 12, kPrimer, kLowConfidence});
  Term<CardPrice> card_price =
      m.input("card_price", "Price of a card", 50000, kDollarsPerCard, {20000, 80000, kPrimer, kLowConfidence});
  Term<BytePrice> ssd_price =
      m.input("ssd_price", "Price of SSD", 0.5, kDollarsPerGigabyte, {0.05, 1, "bare NAND (primer)", kLowConfidence});
  Term<CardRent> card_hour = m.input("card_hour", "Value of a card-hour, as the source has it", 38, kDollarsPerCardHour,
                                     {3, 50, kPrimer, kMediumConfidence});
  // ---- The store
  Term<TokenSize> kv_bytes =
      (m.group("KV store"), m.input("kv_bytes", "KV of a token", 890, kBytesPerToken,
                                    {880, 3600, "technical report, arXiv 2609.19969; 356 B x 2.5 rows"}));
  Term<Tokens> block_tokens = m.input("block_tokens", "Tokens of a block", 128, kTokens, {16, 512, kPrimer});
  Term<Bytes> block_bytes = m.input("block_bytes", "Bytes of a stored block", 112, kKibibytes, {112, 208, kPrimer});
  Term<Seconds> days_short = m.input("days_short", "Retention, chat", 3, kDays, {1, 7, kPrimer, kMediumConfidence});
  Term<Seconds> days_long = m.input("days_long", "Retention, agents", 7, kDays, {3, 30, kPrimer, kMediumConfidence});
  Term<Pure> redundancy =
      m.input("redundancy", "Stored bytes for each byte kept", 1.2, kTimes,
              {1, 3, "erasure coding of the primer, without a source; 3FS replicates", kLowConfidence});
  Term<Pure> copies =
      m.input("copies", "Copies in a replicating store", 2, kTimes, {1, 3, "design notes of 3FS", kMediumConfidence});
  Term<Pure> fill =
      m.input("fill", "Fill of the drives", 80, kPercent, {50, 95, kPrimer, kLowConfidence, Bound::kFraction});
  Term<Bytes> store_size =
      m.input("store_size", "Size of the store", 100, kPebibytes, {50, 200, kPrimer, kMediumConfidence});
  Term<BytesPerSecond> read_peak =
      m.input("read_peak", "Peak read", 10, kTebibytesPerSecond, {5, 20, kPrimer, kMediumConfidence});
  Term<BytesPerSecond> write_peak =
      m.input("write_peak", "Peak write", 850, kGibibytesPerSecond, {400, 1700, kPrimer, kMediumConfidence});
  Term<Pure> gain_low = m.input("gain_low", "Hit rate gained by the longer retention, at least", 0.5, kPoints,
                                {0.1, 1, kPrimer, kMediumConfidence});
  Term<Pure> gain_high = m.input("gain_high", "Hit rate gained by the longer retention, at most", 1, kPoints,
                                 {0.5, 3, kPrimer, kMediumConfidence});
  // ---- A year and a half before
  Term<TokensPerSecond> input_2025 =
      (m.group("February 2025"),
       m.input("input_2025", "Input tokens", 608, kBillionTokensPerDay, {608, 608, "open-infra-index, day 6"}));
  Term<TokensPerSecond> hits_2025 = m.input("hits_2025", "of these found in the cache", 342, kBillionTokensPerDay,
                                            {342, 342, "open-infra-index, day 6"});
  Term<TokensPerSecond> output_2025 =
      m.input("output_2025", "Output tokens", 168, kBillionTokensPerDay, {168, 168, "open-infra-index, day 6"});
  // ---- NAND
  Term<Cards> shipments = (m.group("NAND outlook"), m.input("shipments", "Cards shipped in a year", 20, kMillionCards,
                                                            {5, 40, kPlaceholder, kLowConfidence}));
  Term<Pure> inference_share = m.input("inference_share", "of these for inference", 50, kPercent,
                                       {20, 80, kPlaceholder, kLowConfidence, Bound::kFraction});
  Term<CardRate> new_tokens =
      m.input("new_tokens", "New tokens of a card", 4000, kCardRate,
              {1000, 40000, "the softest number of the primer; this model makes 37,000", kLowConfidence});
  Term<TokenSize> nand_bytes =
      m.input("nand_bytes", "KV of a token", 5, kKilobytesPerToken, {0.89, 260, "\"a few KB\"", kLowConfidence});
  Term<TokenSize> bytes_llama_405b = m.input("bytes_llama_405b", "Llama 3.1 405B, FP8", 260, kKilobytesPerToken,
                                             {258, 260, "126 layers x 8 heads x 128 x 2 = 258,048 B"});
  Term<TokenSize> bytes_llama_70b = m.input("bytes_llama_70b", "Llama 3 70B, FP8", 160, kKilobytesPerToken,
                                            {160, 164, "80 x 8 x 128 x 2 = 163,840 B"});
  Term<TokenSize> bytes_qwen_235b =
      m.input("bytes_qwen_235b", "Qwen3-235B, FP8", 100, kKilobytesPerToken, {96, 100, "94 x 4 x 128 x 2 = 96,256 B"});
  Term<TokenSize> bytes_mla_bf16 =
      m.input("bytes_mla_bf16", "V3 with MLA, BF16", 70, kKilobytesPerToken, {70, 71, "61 x 576 x 2 = 70,272 B"});
  Term<TokenSize> bytes_mla_fp8 =
      m.input("bytes_mla_fp8", "V3 with MLA, FP8", 35, kKilobytesPerToken, {35, 36, "61 x 576 = 35,136 B"});
  Term<TokenSize> bytes_v4 =
      m.input("bytes_v4", "V4 Flash, in memory", 3.5, kKilobytesPerToken, {3.5, 3.6, "four times V4.1"});
  Term<Bytes> supply = m.input("supply", "NAND supply of 2027", 1400, kExabytes, {1200, 1600, kPrimer, kLowConfidence});
  Term<Bytes> supply_2026 =
      m.input("supply_2026", "NAND supply of 2026", 1200, kExabytes, {1000, 1300, kPrimer, kLowConfidence});
  Term<Pure> growth_low = m.input("growth_low", "Growth of supply, at least", 15, kPercent,
                                  {5, 20, kPrimer, kLowConfidence, Bound::kFraction});
  Term<Pure> growth_high = m.input("growth_high", "Growth of supply, at most", 20, kPercent,
                                   {15, 30, kPrimer, kLowConfidence, Bound::kFraction});
};

// What several parts refer to.
struct ProductionBasis {
  Term<Pure> hit_rate;
  Term<CardRate> mean_rate;
  Term<Cards> cards;
  Term<CardRent> prefill_revenue, decode_revenue, mean_revenue;
  Term<TokensPerSecond> computed;
  Term<CardRate> new_tokens;
  Term<CardBytesPerSecond> new_kv;
};

ProductionBasis add_traffic_figures(Production& p) {
  Model& m = p.m;
  const auto decode_share = 1 - p.prefill_share;
  m.group("Traffic");
  const auto hit_rate =
      m.figure("hit_rate", "Hit rate", kPercent, 1 - p.miss_rate / p.prefill_rate, {1, "", Claim{96, 1, "96 %"}});
  const auto mean = m.figure("mean_rate", "Tokens of a card, mean of both kinds", kCardRate,
                             p.prefill_share * p.prefill_rate + decode_share * p.decode_rate,
                             {2, "d", Claim{760000, 10000, "760,000"}});
  const auto cards = m.figure("cards", "Cards", kCards, p.traffic / mean, {3, "cd", Claim{2400, 100, "about 2,400"}});
  m.figure("output_share", "Output among all tokens", kPercent, decode_share * p.decode_rate / mean,
           {4, "d", Claim{0.9, 0.1, "0.9 %"}});
  m.figure("input_per_day", "Input", kTrillionTokensPerDay, p.traffic * (p.prefill_share * p.prefill_rate / mean), {5});
  m.figure("misses_per_day", "Input computed", kTrillionTokensPerDay,
           p.traffic * (p.prefill_share * p.miss_rate / mean), {5});
  m.figure("output_per_day", "Output", kTrillionTokensPerDay, p.traffic * (decode_share * p.decode_rate / mean), {5});
  const auto new_tokens = p.prefill_share * p.miss_rate + decode_share * p.decode_rate;
  const auto computed =
      m.figure("computed_per_day", "Tokens computed", kTrillionTokensPerDay, p.traffic * (new_tokens / mean), {6});
  m.figure("growth", "Growth of tokens computed since February 2025", kTimes,
           computed / (p.input_2025 - p.hits_2025 + p.output_2025), {7, "", Claim{17, 1, "about 17"}});
  m.figure("saved_tokens", "Tokens served for each that is computed", kNumber, p.traffic / computed);
  m.group("Revenue");
  const auto prefill = m.figure(
      "prefill_revenue", "Revenue of a prefill card at off-peak list price", kDollarsPerCardHour,
      p.prefill_rate * (hit_rate * p.price_hit + (1 - hit_rate) * p.price_miss), {8, "b", Claim{48, 1, "$48"}});
  const auto decode = m.figure("decode_revenue", "Revenue of a decode card", kDollarsPerCardHour,
                               p.decode_rate * p.price_output, {9, "b", Claim{30, 1, "$30"}});
  const auto revenue =
      m.figure("mean_revenue", "Revenue of a card, mean", kDollarsPerCardHour,
               p.prefill_share * prefill + decode_share * decode, {10, "abd", Claim{38, 1, "$38 (and $39)"}});
  m.group("Store");
  const auto made = m.figure("new_tokens_per_card", "New tokens of a card", kCardRate, new_tokens,
                             {11, "d", Claim{37000, 1000, "37,000"}});
  const auto new_kv = m.figure("new_kv", "New KV of a card", kTerabytesPerCardDay, made * p.kv_bytes,
                               {12, "d", Claim{2.85, 0.01, "2.85 TB"}});
  return {hit_rate, mean, cards, prefill, decode, revenue, computed, made, new_kv};
}

void add_store_figures(Production& p, const ProductionBasis& b) {
  Model& m = p.m;
  const auto short_ssd = m.figure("ssd_per_card_short", "SSD of a card, bottom-up, chat's retention", kTerabytesPerCard,
                                  b.new_kv * p.days_short * p.redundancy / p.fill, {13, "de", Claim{13, 1, "13 TB"}});
  const auto long_ssd = m.figure("ssd_per_card_long", "SSD of a card, bottom-up, agents' retention", kTerabytesPerCard,
                                 b.new_kv * p.days_long * p.redundancy / p.fill, {13, "de", Claim{30, 1, "30 TB"}});
  const auto configured = m.figure("ssd_configured", "SSD of a card, top-down", kTebibytesPerCard,
                                   p.store_size / p.configured_cards, {14, "cef", Claim{43, 1, "43 TiB"}});
  m.figure("ssd_configured_tb", "the same in TB", kTerabytesPerCard, configured, {14, "ef", Claim{47, 1, "47 TB"}});
  m.group("NAND outlook");
  const auto nand_rate = m.figure("nand_tokens", "New tokens of all cards shipped", kTrillionTokensPerDay,
                                  p.shipments * p.inference_share * p.new_tokens, {15, "k"});
  const auto stock = [&](const Term<TokenSize>& size) {
    return nand_rate * size * p.days_short * p.redundancy / p.fill;
  };
  const auto demand = m.figure("nand_demand", "NAND they need", kExabytes, stock(p.nand_bytes),
                               {16, "ijk", Claim{80, 10, "about 80 EB"}});
  m.figure("nand_share", "of the supply of 2027", kPercent, demand / p.supply, {17, "kq", Claim{5.6, 0.1, "5.6 %"}});
  m.figure("supply_low", "NAND supply of 2027, at least", kExabytes, p.supply_2026 * (1 + p.growth_low),
           {18, "", Claim{1380, 1, "1,380 EB"}});
  m.figure("supply_high", "NAND supply of 2027, at most", kExabytes, p.supply_2026 * (1 + p.growth_high),
           {18, "", Claim{1440, 1, "1,440 EB"}});
  m.figure("nand_llama_405b", "NAND for Llama 3.1 405B", kExabytes, stock(p.bytes_llama_405b), {0, "i"});
  m.figure("nand_llama_70b", "NAND for Llama 3 70B", kExabytes, stock(p.bytes_llama_70b), {0, "i"});
  m.figure("nand_qwen_235b", "NAND for Qwen3-235B", kExabytes, stock(p.bytes_qwen_235b), {0, "i"});
  m.figure("nand_mla_bf16", "NAND for V3, BF16", kExabytes, stock(p.bytes_mla_bf16), {0, "i"});
  m.figure("nand_mla_fp8", "NAND for V3, FP8", kExabytes, stock(p.bytes_mla_fp8), {0, "i"});
  m.figure("nand_v4", "NAND for V4 Flash", kExabytes, stock(p.bytes_v4), {0, "j"});
  m.figure("nand_v41", "NAND for V4.1 Flash", kExabytes, stock(p.kv_bytes), {0, "j"});
  m.figure("nand_break_even", "KV of a token at which all NAND is needed", kKilobytesPerToken,
           p.supply / (nand_rate * p.days_short * p.redundancy / p.fill), {0, "i"});
  m.group("Return of the store");
  const auto cost = m.figure("store_cost", "Cost of the store", kMillionDollars, p.store_size * p.ssd_price,
                             {19, "l", Claim{56, 1, "$56 million"}});
  const auto prefill_cards = p.configured_cards * p.prefill_share;
  const auto without = m.figure("cards_without", "Prefill cards without a cache", kCards,
                                prefill_cards / (1 - b.hit_rate), {20, "l", Claim{30000, 1000, "30,000"}});
  const auto extra = m.figure("cost_without", "Cost of those that the cache saves", kMillionDollars,
                              (without - prefill_cards) * p.card_price, {20, "l", Claim{1400, 100, "$1.4 billion"}});
  m.figure("store_return", "Return of the store", kTimes, extra / cost, {21, "l", Claim{25, 1, "about 25"}});
  m.figure("store_return_copies", "Return with replicated blocks", kTimes, extra / (cost * p.copies), {0, "l"});
  m.group("Store");
  m.figure("ssd_two_copies", "SSD of a card, agents' retention, replicated", kTerabytesPerCard,
           b.new_kv * p.days_long * p.copies / p.fill, {0, "e"});
  m.figure("filled_short", "Store filled at chat's retention", kPercent, short_ssd / configured, {0, "ef"});
  m.figure("filled_long", "Store filled at agents' retention", kPercent, long_ssd / configured, {0, "ef"});
}

void add_payback_figures(Production& p, const ProductionBasis& b) {
  Model& m = p.m;
  m.group("Payback of days");
  const auto ssd =
      m.figure("extra_ssd", "SSD for the longer retention, a pair of cards", kTerabytesPerCard,
               (p.miss_rate + p.decode_rate) * p.kv_bytes * (p.days_long - p.days_short) * p.redundancy / p.fill,
               {22, "n", Claim{34, 1, "34 TB"}});
  const auto cost =
      m.figure("extra_cost", "its price", kDollarsPerCard, ssd * p.ssd_price, {22, "n", Claim{17000, 1000, "$17,000"}});
  const auto part = [&](const std::string& end, const std::string& label, const Term<Pure>& gain, double net_claim,
                        double payback_claim) {
    const auto freed = m.figure("freed_" + end, "Prefill card freed, gain " + label, kNumber,
                                gain * p.prefill_rate / p.miss_rate, {23});
    const auto worth = m.figure("freed_value_" + end, "its value", kDollarsPerCardYear, freed * p.card_hour, {24, "m"});
    const auto lost = m.figure("lost_" + end, "Revenue lost, hits instead of misses", kDollarsPerCardYear,
                               gain * p.prefill_rate * (p.price_miss - p.price_hit), {25, "m"});
    const auto net = m.figure("net_" + end, "Net gain", kDollarsPerCardYear, worth - lost,
                              {26, "m", Claim{net_claim, 1000, end == "low" ? "$7,000" : "$14,000"}});
    m.figure("payback_" + end, "Payback, gain " + label, kYears, cost / net,
             {27, "mn", Claim{payback_claim, 0.05, fmt::format("{} years", payback_claim)}});
    m.figure("payback_dear_" + end, "Payback at $1 per GB", kYears, 2 * cost / net,
             {27, "mn", Claim{2 * payback_claim, 0.1, fmt::format("{} years", 2 * payback_claim)}});
    m.figure("payback_own_" + end, "Payback at what a prefill card earns", kYears,
             cost / (freed * b.prefill_revenue - lost), {0, "m"});
  };
  part("low", "at least", p.gain_low, 7000, 2.5);
  part("high", "at most", p.gain_high, 14000, 1.25);
  m.figure("worth_threshold", "Value of a prefill card-hour below which it never pays", kDollarsPerCardHour,
           p.miss_rate * (p.price_miss - p.price_hit), {0, "m"});
  m.group("Revenue");
  m.figure("over_rent_low", "Revenue over rent, dear", kTimes, p.card_hour / p.rent_high, {28, "", Claim{6, 1, "6"}});
  m.figure("over_rent_high", "Revenue over rent, cheap", kTimes, p.card_hour / p.rent_low,
           {28, "", Claim{13, 1, "13"}});
}

void add_finding_figures(Production& p, const ProductionBasis& b) {
  Model& m = p.m;
  const auto decode_share = 1 - p.prefill_share;
  m.group("What would make it fit");
  m.figure("hit_for_source", "Hit rate at which a card earns what the source says", kPercent,
           (p.price_miss - (p.card_hour - decode_share * b.decode_revenue) / (p.prefill_share * p.prefill_rate)) /
               (p.price_miss - p.price_hit),
           {0, "a"});
  m.figure("share_for_source", "Share of prefill cards at which it does", kPercent,
           (p.card_hour - b.decode_revenue) / (b.prefill_revenue - b.decode_revenue), {0, "a"});
  m.figure("revenue_over_source", "Revenue above the source's", kPercent, b.mean_revenue / p.card_hour - 1, {0, "a"});
  m.figure("revenue_weighted", "Revenue of a card with peak hours", kDollarsPerCardHour,
           b.mean_revenue * (1 + p.peak_share * (p.peak_factor - 1)), {0, "b"});
  m.figure("fleet_revenue", "Revenue of the fleet at off-peak list price", kMillionDollarsPerDay,
           b.mean_revenue * b.cards, {0, "b"});
  m.figure("cards_for_peak", "Cards when the mean load is below the peak", kCards, b.cards / p.mean_to_peak, {0, "c"});
  const auto stored_bytes = m.figure("stored_bytes", "Bytes of a token in a stored block", kBytesPerToken,
                                     p.block_bytes / p.block_tokens, {0, "e"});
  const auto fleet_tokens = p.configured_cards * b.new_tokens;
  const auto held = m.figure("store_tokens", "Tokens that the store can hold", kTrillionTokens,
                             p.store_size / stored_bytes, {0, "e"});
  m.figure("store_days", "Days of new tokens that are", kDays, held / fleet_tokens, {0, "e"});
  m.figure("store_days_redundant", "the same with redundancy and fill", kDays,
           held / fleet_tokens / (p.redundancy / p.fill), {0, "e"});
  const auto filling = [&](const Term<Seconds>& days) {
    return p.store_size / (b.new_tokens * stored_bytes * days * p.redundancy / p.fill);
  };
  m.figure("cards_filling_long", "Cards that fill the store at agents' retention", kCards, filling(p.days_long),
           {0, "e"});
  m.figure("cards_filling_short", "Cards that fill it at chat's", kCards, filling(p.days_short), {0, "e"});
  const auto reads =
      m.figure("mean_reads", "Reads of the store, mean", kTebibytesPerSecond,
               (p.prefill_rate - p.miss_rate) * (p.configured_cards * p.prefill_share) * p.kv_bytes, {0, "g"});
  const auto writes =
      m.figure("mean_writes", "Writes of the store, mean", kGibibytesPerSecond, fleet_tokens * p.kv_bytes, {0, "g"});
  m.figure("read_headroom", "Peak read against the mean", kTimes, p.read_peak / reads, {0, "g"});
  m.figure("write_headroom", "Peak write against the mean", kTimes, p.write_peak / writes, {0, "g"});
  const auto ratio = m.figure("peak_ratio", "Reads for a write, peaks", kTimes, p.read_peak / p.write_peak, {0, "g"});
  m.figure("mean_ratio", "Reads for a write, means", kTimes, reads / writes, {0, "g"});
  m.figure("hit_for_ratio", "Hit rate at which the peaks' ratio is that of the means", kPercent,
           ratio * (p.prefill_share * p.prefill_rate + decode_share * p.decode_rate) /
               (p.prefill_share * p.prefill_rate * (1 + ratio)),
           {0, "g"});
  m.figure("block_reads_peak", "Blocks read at the peak", kMillionReadsPerSecond, p.read_peak / p.block_bytes,
           {0, "h"});
  m.figure("block_reads_mean", "Blocks read, mean", kMillionReadsPerSecond, reads / p.block_bytes, {0, "h"});
  m.figure("new_blocks", "New blocks", kBillionBlocksPerDay, fleet_tokens / p.block_tokens, {0, "h"});
  m.group("A card");
  const auto users =
      m.figure("users_per_card", "Answers at a time on a decode card", kRequestsPerCard, p.decode_rate / p.user_speed);
  m.figure("users_per_unit", "on a unit of 64", kRequests, users * constant(64, kCards));
  m.figure("token_interval", "Time between tokens of an answer", kMilliseconds,
           constant(1, kTokensPerRequest) / p.user_speed);
  m.figure("prefill_compute", "Arithmetic of a prefill card, without attention", kPetaOperationsPerCard,
           p.miss_rate * constant(16, kGigaOperationsPerToken),
           {.source = "8 billion active parameters, two operations each"});
}

void add_findings(Model& m) {
  m.finding('a',
            "{mean_revenue} is {revenue_over_source} more than the {card_hour} that the source goes on with. Exactly "
            "that needs a hit rate of {hit_for_source}, or {share_for_source} of the cards for prefill.");
  m.finding('b',
            "Off-peak prices only. With the published peak hours the mean is at least {revenue_weighted}, more when "
            "weighted by traffic. Web and app are free, so what is really earned is unknown.");
  m.finding('c',
            "The number of cards assumes that each runs at the table's rate all day. With a mean of {mean_to_peak} of "
            "the peak it is {cards_for_peak} or more, and all that is told per card shrinks with it.");
  m.finding('d',
            "One prefill card to one decode card is told as an equal split; output share, new tokens, revenue and SSD "
            "of a card inherit it.");
  m.finding('e',
            "{store_size} hold {store_tokens}: {store_days} of new tokens ({store_days_redundant} with redundancy and "
            "fill). At 3 and 7 days of retention it would be {filled_short} and {filled_long} full: "
            "{cards_filling_long} would fill it at seven days, {cards_filling_short} at three. With {copies} copies, "
            "which is what 3FS does, seven days need {ssd_two_copies} against {ssd_configured_tb}: nearly a match.");
  m.finding('f',
            "If the store is half empty, as the source has it, keeping data longer costs nothing, which contradicts "
            "that 3 and 7 days are the optimum.");
  m.finding('g',
            "The same numbers give {mean_reads} of reads and {mean_writes} of writes on average; the peaks are "
            "{read_headroom} and {write_headroom} that. Reads for a write are {peak_ratio} in the peaks and "
            "{mean_ratio} in the means (the peaks' ratio fits a hit rate of {hit_for_ratio}). The peaks are probably "
            "what the store can do, or hold replication and rewrites.");
  m.finding('h',
            "The peak is {block_reads_peak} of blocks ({block_reads_mean} on average) and {new_blocks} are written: "
            "blocks must be packed into larger files, with an index apart.");
  m.finding('i',
            "\"500 to 1,500 EB without compression\" covers 32 to 96 KB a token; the source's own Llama values give "
            "{nand_llama_70b} and {nand_llama_405b}. All NAND is gone at {nand_break_even}.");
  m.finding('j', "\"A few KB give 80 EB\" holds at 5 KB; it is {nand_v4} for V4 and {nand_v41} for V4.1.");
  m.finding('k',
            "The outlook compares a stock (what all cards must hold) with one year's supply, and counts only one "
            "year's shipments of cards.");
  m.finding('l',
            "The return counts bare NAND against whole cards. Servers, network, power and a second copy are missing "
            "({store_return_copies} with copies), and \"no cache\" ignores hits in memory: an upper bound.");
  m.finding(
      'm',
      "A freed prefill card is valued at the mixed {card_hour}, though it sells only together with decode. At what a "
      "prefill card earns the payback is {payback_own_high} to {payback_own_low}; below {worth_threshold} it never "
      "pays, whatever the gain, and without unmet demand longer retention loses {lost_low} to {lost_high} a pair.");
  m.finding('n',
            "The four days more are charged to all traffic, but only chat is extended; agents have seven already. The "
            "cost is overstated.");
  m.finding('o',
            "\"Third parties take 4 to 5 times longer to the first token and cost more\": later measurements show "
            "third parties at 0.84 to 0.95 s, and one below the official price (Artificial Analysis).");
  m.finding('p',
            "Prefill/decode disaggregation and the cold store are told as things that DeepInfer's release does; its "
            "repository lists both as not included.");
  m.finding('q', "Star counts and the share of NAND (6 to 7 %, then 5 to 6 %) differ between versions of the sources.");
}

}  // namespace

const Model& production_model() {
  static const Model model = [] {
    Model m("published", "The published service, recomputed");
    Production inputs(m);
    const ProductionBasis basis = add_traffic_figures(inputs);
    add_store_figures(inputs, basis);
    add_payback_figures(inputs, basis);
    add_finding_figures(inputs, basis);
    add_findings(m);
    return m;
  }();
  return model;
}

}  // namespace deepinfer::planner
