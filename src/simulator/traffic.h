// The requests of a simulation: a recorded trace at another scale, or sessions drawn from distributions.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/keys.h"
#include "planner/trace.h"

namespace deepinfer::simulator {

struct Request {
  double arrival_s = 0;
  int64_t input = 0, output = 1;
  int64_t first_id = 0, num_ids = 0;  // of its blocks, in Traffic::ids
};

struct Traffic {
  std::vector<Request> requests;  // in order of arrival
  std::vector<int64_t> ids;       // equal ids: equal block and equal prefix before it
  int64_t id_tokens = 512;        // of an id; a multiple of 128
};

// `copies` of each request, up to 60 s apart and with prefixes of their own, so that rate and hit ratio stay those of
// the trace. Deterministic by seed.
Traffic scale_trace(const planner::Trace& trace, int64_t copies, uint64_t seed);

// People and agents in sessions: each turn sends what was said before. People think for about a minute, agents call
// again within seconds; one agent in ten pauses for hours.
struct SessionOptions {
  double sessions_per_s = 0.2;
  double hours = 1;
  double agent_share = 0.3;
  double turns = 6;           // of a session, mean
  double first_input = 3000;  // tokens, median; a system prompt of `shared_prompt` comes in front
  double later_input = 400;
  double output = 350;
  int64_t shared_prompt = 1024;
};
Traffic draw_sessions(const SessionOptions& options, uint64_t seed);

// Names and tokens of the 128-token blocks that an id stands for.
PrefixKey block_key(int64_t id, int64_t part);
int32_t block_token(const PrefixKey& key);  // all 128 are this

}  // namespace deepinfer::simulator
