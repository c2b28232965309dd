/* A remote tier of the KV store: blocks elsewhere (a shared directory, Redis, an object store), behind one
 * small C ABI, so that a tier can live in a library of its own. Source: docs/spec/kv.md 9.
 *
 * Every call has one status per key, always, and must end near its deadline. A tier promises nothing about
 * the bytes: the caller checks key and crc itself. Calls may come from several threads.
 */
#ifndef DEEPINFER_STORE_KV_TIER_H
#define DEEPINFER_STORE_KV_TIER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DEEPINFER_KV_TIER_ABI 1

typedef enum {
  KV_TIER_OK = 0,
  KV_TIER_ABSENT = 1,
  KV_TIER_FAILED = 2, /* the tier answered with an error */
  KV_TIER_TIMEOUT = 3,
  KV_TIER_TOO_SMALL = 4 /* the value is longer than the buffer */
} kv_tier_status;

typedef struct {
  unsigned char bytes[32];
} kv_tier_key;

typedef struct {
  unsigned char* data;
  size_t size; /* in: room (get) or bytes (put); out of get: bytes of the value */
} kv_tier_buffer;

typedef struct kv_tier kv_tier;

struct kv_tier {
  uint32_t abi; /* DEEPINFER_KV_TIER_ABI */
  const char* name;
  void* self;
  /* `status` has `count` places; timeout_ms bounds the whole call. */
  void (*exists)(void* self, size_t count, const kv_tier_key* keys, int64_t timeout_ms,
                 kv_tier_status* status);
  void (*get)(void* self, size_t count, const kv_tier_key* keys, kv_tier_buffer* buffers, int64_t timeout_ms,
              kv_tier_status* status);
  /* ttl_s 0: as long as the tier likes. A key that is there already is KV_TIER_OK. */
  void (*put)(void* self, size_t count, const kv_tier_key* keys, const kv_tier_buffer* buffers,
              uint32_t ttl_s, int64_t timeout_ms, kv_tier_status* status);
  void (*remove)(void* self, size_t count, const kv_tier_key* keys, int64_t timeout_ms,
                 kv_tier_status* status);
  void (*close)(void* self);
};

#ifdef __cplusplus
}
#endif

#endif
