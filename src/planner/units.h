// Units as types: a formula that adds tokens to bytes, or calls dollars per token dollars per card, does not compile.
//
// Values are doubles in base units (token, byte, card, dollar, second, request, operation). A Measure says how people
// write a value: "$0.15 per 1M tokens" is 0.15 x 1e-6 dollars per token.
#pragma once

#include <string_view>

namespace deepinfer::planner {

template <int tokens, int bytes, int cards, int dollars, int seconds, int requests, int operations>
struct Unit {
  static constexpr int kTokens = tokens, kBytes = bytes, kCards = cards, kDollars = dollars, kSeconds = seconds,
                       kRequests = requests, kOperations = operations;
};

template <typename A, typename B>
using Product = Unit<A::kTokens + B::kTokens, A::kBytes + B::kBytes, A::kCards + B::kCards, A::kDollars + B::kDollars,
                     A::kSeconds + B::kSeconds, A::kRequests + B::kRequests, A::kOperations + B::kOperations>;
template <typename A, typename B>
using Quotient = Unit<A::kTokens - B::kTokens, A::kBytes - B::kBytes, A::kCards - B::kCards, A::kDollars - B::kDollars,
                      A::kSeconds - B::kSeconds, A::kRequests - B::kRequests, A::kOperations - B::kOperations>;

using Pure = Unit<0, 0, 0, 0, 0, 0, 0>;
using Tokens = Unit<1, 0, 0, 0, 0, 0, 0>;
using Bytes = Unit<0, 1, 0, 0, 0, 0, 0>;
using Cards = Unit<0, 0, 1, 0, 0, 0, 0>;
using Dollars = Unit<0, 0, 0, 1, 0, 0, 0>;
using Seconds = Unit<0, 0, 0, 0, 1, 0, 0>;
using Requests = Unit<0, 0, 0, 0, 0, 1, 0>;
using Operations = Unit<0, 0, 0, 0, 0, 0, 1>;

using PerSecond = Quotient<Pure, Seconds>;
using TokensPerSecond = Quotient<Tokens, Seconds>;
using TokensPerRequest = Quotient<Tokens, Requests>;
using RequestsPerSecond = Quotient<Requests, Seconds>;
using CardRate = Quotient<TokensPerSecond, Cards>;      // tokens per second of one card
using UserSpeed = Quotient<TokensPerSecond, Requests>;  // tokens per second of one answer
using TokenSize = Quotient<Bytes, Tokens>;
using BytesPerSecond = Quotient<Bytes, Seconds>;
using BytesPerCard = Quotient<Bytes, Cards>;
using CardBytesPerSecond = Quotient<BytesPerSecond, Cards>;
using TokenPrice = Quotient<Dollars, Tokens>;
using BytePrice = Quotient<Dollars, Bytes>;
using CardPrice = Quotient<Dollars, Cards>;
using CardRent = Quotient<CardPrice, Seconds>;  // dollars per second of one card
using DollarsPerSecond = Quotient<Dollars, Seconds>;
using OperationsPerSecond = Quotient<Operations, Seconds>;
using TokenWork = Quotient<Operations, Tokens>;

template <typename U>
struct Measure {
  std::string_view text;  // what stands behind the number; "$ per hour" is written "$5 per hour"
  double scale;           // base units in one of these
};

inline constexpr double kHour = 3600, kDay = 86400, kYear = 365 * kDay;
inline constexpr double kKi = 1024, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi, kPi = kTi * kKi;

inline constexpr Measure<Pure> kNumber{"", 1}, kPercent{"%", 0.01}, kPoints{"points", 0.01}, kTimes{"times", 1},
    kMillions{"million", 1e6}, kBillions{"billion", 1e9};
inline constexpr Measure<PerSecond> kReadsPerSecond{"reads/s", 1}, kMillionReadsPerSecond{"million reads/s", 1e6},
    kBillionBlocksPerDay{"billion blocks/day", 1e9 / kDay};
inline constexpr Measure<Tokens> kTokens{"tokens", 1}, kTrillionTokens{"trillion tokens", 1e12};
inline constexpr Measure<TokensPerSecond> kTokensPerSecond{"tokens/s", 1},
    kTrillionTokensPerDay{"trillion tokens/day", 1e12 / kDay}, kBillionTokensPerDay{"billion tokens/day", 1e9 / kDay};
inline constexpr Measure<TokensPerRequest> kTokensPerRequest{"tokens/request", 1};
inline constexpr Measure<RequestsPerSecond> kRequestsPerSecond{"requests/s", 1};
inline constexpr Measure<Requests> kRequests{"requests", 1};
inline constexpr Measure<Quotient<Requests, Cards>> kRequestsPerCard{"requests/card", 1};
inline constexpr Measure<CardRate> kCardRate{"tokens/s per card", 1};
inline constexpr Measure<UserSpeed> kUserSpeed{"tokens/s per user", 1};
inline constexpr Measure<Quotient<Seconds, Tokens>> kSecondsPerToken{"ms/token", 1e-3};
inline constexpr Measure<TokenSize> kBytesPerToken{"B/token", 1}, kKilobytesPerToken{"KB/token", 1e3},
    kGigabytesPerToken{"GB/token", 1e9};
inline constexpr Measure<Bytes> kBytes{"B", 1}, kKibibytes{"KiB", kKi}, kMegabytes{"MB", 1e6}, kGigabytes{"GB", 1e9},
    kTerabytes{"TB", 1e12}, kPebibytes{"PiB", kPi}, kExabytes{"EB", 1e18};
inline constexpr Measure<BytesPerSecond> kGigabytesPerSecond{"GB/s", 1e9}, kGibibytesPerSecond{"GiB/s", kGi},
    kTebibytesPerSecond{"TiB/s", kTi};
inline constexpr Measure<BytesPerCard> kTerabytesPerCard{"TB/card", 1e12}, kTebibytesPerCard{"TiB/card", kTi};
inline constexpr Measure<CardBytesPerSecond> kTerabytesPerCardDay{"TB/day per card", 1e12 / kDay},
    kGigabytesPerCardSecond{"GB/s per card", 1e9};
inline constexpr Measure<Cards> kCards{"cards", 1}, kMillionCards{"million cards", 1e6};
inline constexpr Measure<TokenPrice> kDollarsPerMillion{"$ per 1M tokens", 1e-6};
inline constexpr Measure<BytePrice> kDollarsPerGigabyte{"$ per GB", 1e-9};
inline constexpr Measure<CardPrice> kDollarsPerCard{"$ per card", 1};
inline constexpr Measure<CardRent> kDollarsPerCardHour{"$ per card-hour", 1 / kHour},
    kDollarsPerCardYear{"$ per card-year", 1 / kYear};
inline constexpr Measure<Dollars> kDollars{"$", 1}, kMillionDollars{"$ million", 1e6};
inline constexpr Measure<DollarsPerSecond> kDollarsPerHour{"$ per hour", 1 / kHour},
    kMillionDollarsPerDay{"$ million per day", 1e6 / kDay};
inline constexpr Measure<Seconds> kSeconds{"s", 1}, kMilliseconds{"ms", 1e-3}, kDays{"d", kDay}, kYears{"years", kYear};
inline constexpr Measure<TokenWork> kGigaOperationsPerToken{"GFLOP/token", 1e9};
inline constexpr Measure<OperationsPerSecond> kGigaOperations{"GFLOP/s", 1e9};
inline constexpr Measure<Quotient<OperationsPerSecond, Cards>> kPetaOperationsPerCard{"PFLOP/s per card", 1e15};

}  // namespace deepinfer::planner
