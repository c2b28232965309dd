// Decoding with VBMI and sums of bytes with VNNI, for the tables that have them (private to the kernels room). To be included
// as avx512_linear.h is, in front of it.

// Upper and lower bytes of the bf16 numbers of the 128 E4M3 magnitudes.
struct Fp8Tables {
  alignas(64) uint8_t upper[128];
  alignas(64) uint8_t lower[128];
};
constexpr Fp8Tables make_fp8_tables() {
  Fp8Tables tables = {};
  for (int code = 0; code < 128; ++code) {
    const int exponent = code >> 3, mantissa = code & 7;
    float value = static_cast<float>(mantissa) * 0x1p-9f;
    if (exponent > 0) value = std::bit_cast<float>(static_cast<uint32_t>(exponent + 120) << 23 | static_cast<uint32_t>(mantissa) << 20);
    const uint32_t bits = code == 127 ? 0x7fc00000u : std::bit_cast<uint32_t>(value);
    tables.upper[code] = static_cast<uint8_t>(bits >> 24);
    tables.lower[code] = static_cast<uint8_t>(bits >> 16);
  }
  return tables;
}
constexpr Fp8Tables kFp8Tables = make_fp8_tables();

struct Fp8Decoder {
  __m512i upper[2], lower[2];
  Fp8Decoder() {
    for (int half = 0; half < 2; ++half) {
      upper[half] = _mm512_load_si512(kFp8Tables.upper + 64 * half);
      lower[half] = _mm512_load_si512(kFp8Tables.lower + 64 * half);
    }
  }

  struct Line {
    __m512i low, high;  // bytes of the numbers
  };
  inline Line load(const std::byte* bytes) const {
    const __m512i codes = _mm512_loadu_si512(bytes);
    const __m512i high = _mm512_permutex2var_epi8(upper[0], codes, upper[1]);  // takes seven bits of a code
    return {_mm512_permutex2var_epi8(lower[0], codes, lower[1]),
            _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8(-128), 0xf8)};  // or the sign
  }
  template <int kPair>
  inline __m512i pair(const Line& line) const {
    return kPair == 0 ? _mm512_unpacklo_epi8(line.low, line.high) : _mm512_unpackhi_epi8(line.low, line.high);
  }
};

inline __m512i dot_bytes(__m512i acc, __m512i w, __m512i x) {
  return _mm512_dpbusd_epi32(acc, w, x);
}

struct Int8Decoder {
  __m512i table;  // four times the same: the look-up takes two bits of a neighbour with it
  Int8Decoder()
      : table(_mm512_broadcast_i32x4(
            _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0))) {}
  inline void line(const std::byte* line, __m512i (&bytes)[2]) const {
    const __m512i codes = _mm512_loadu_si512(line);
    bytes[0] = _mm512_permutexvar_epi8(codes, table);
    bytes[1] = _mm512_permutexvar_epi8(_mm512_srli_epi16(codes, 4), table);
  }
};
