// From one row of logits to one token.
//
// Order: log probabilities of the raw logits; logit bias; repetition, presence and frequency penalty; mask; temperature;
// min_p, top_k, top_p; draw. The filters come in vLLM's order: each keeps a prefix of the tokens sorted by falling logit,
// so min_p and top_k commute, and top_p is a share of what those two left.
//
// Edges: equal logits rank by lower id. NaN counts as -inf, and -inf is never drawn. A temperature below 1e-5, or not a
// number, is greedy, and so is a row whose best logit is +inf. A row where every logit is -inf gives the lowest id that
// neither mask nor bias bans, and -1 if there is none. Ids outside the vocabulary are ignored, bits missing in a mask ban.
//
// The result has the same bits on every machine: weights are rounded once to integers (2^-40 of the best token's), so sums
// are exact in any order, and the draw is the first id in rising order whose running sum exceeds a random integer.
#pragma once

#include <cstdint>
#include <vector>

namespace millstream {

// Flat arrays of `rows` rows, owned by the caller. Lists are in CSR form: row r owns entries starts[r] to starts[r + 1].
struct SamplingBatch {
  int rows;
  int mask_words;  // words per row of masks
  const float *temperature, *top_p, *min_p, *repetition_penalty, *presence_penalty, *frequency_penalty;
  const int32_t *top_k, *logprobs, *mask_rows;
  const uint64_t* seed;
  const uint32_t *choice, *position, *masks;
  const int32_t *bias_starts, *bias_ids;
  const float* bias_values;
  const int32_t *history_starts, *history_ids, *history_counts;
};

// Where results go: [rows], the top lists [rows, top_width]. Only what a row asked for is written; unused places of a
// written top list hold id -1 and -inf.
struct SampleOutput {
  int32_t* tokens;
  float* logprobs;
  int32_t* top_ids;
  float* top_logprobs;
  int top_width;
};

// Rows of which the next token is known: what a step is asked (rows of the step, targets) and where it answers. Flat
// arrays of `count` entries, the top lists [count, top_width]; unused places of a top list hold id -1 and -inf.
struct ScoreBatch {
  int count;
  int top_width;
  const int32_t *rows, *targets;
  float* logprobs;
  int32_t* top_ids;
  float* top_logprobs;
};

struct Candidate {
  float logit;
  int32_t id;
};

// What one thread needs to sample rows of up to `vocab` logits.
struct SamplerScratch {
  explicit SamplerScratch(int vocab);

  std::vector<float> raw;             // [vocab] logits before bias and penalties
  std::vector<float> weights;         // [vocab] relative to the best token, 0 if filtered out
  std::vector<uint64_t> block_mass;   // sums of integer weights, one per block of ids
  std::vector<Candidate> candidates;  // [vocab]
};

// Samples row r of the batch from `logits` [vocab], which may be overwritten. Allocates nothing.
void sample_row(float* logits, int vocab, const SamplingBatch& batch, int r, const SampleOutput& out,
                SamplerScratch& scratch) noexcept;

// The log probability of the known token of entry i and the best alternatives, with the bits that a sampled row of the same
// logits [vocab] reports. The target must be in the vocabulary. Allocates nothing.
void score_row(const float* logits, int vocab, const ScoreBatch& batch, int i, SamplerScratch& scratch) noexcept;

}  // namespace millstream
