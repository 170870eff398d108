#include "sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "fastmath.h"
#include "philox.h"

namespace millstream {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kGreedyTemperature = 1e-5f;
constexpr int kLanes = 16;
constexpr int kBlock = 256;  // ids per block: the unit that is skipped or searched as a whole

int blocks_of(int vocab) { return (vocab + kBlock - 1) / kBlock; }

// Rank by falling logit, then rising id: a total order without NaN.
bool better(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// Largest of n values, NaN ignored; -inf if there is none.
float block_max(const float* x, int n) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -kInfinity);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  return *std::max_element(lanes, lanes + kLanes);
}

// The best token, {-inf, -1} if every logit is -inf or NaN.
Candidate argmax(const float* logits, int vocab) {
  Candidate best{-kInfinity, -1};
  int best_start = 0;
  for (int start = 0; start < vocab; start += kBlock) {
    const float m = block_max(logits + start, std::min(kBlock, vocab - start));
    if (m > best.logit) best.logit = m, best_start = start;
  }
  if (best.logit > -kInfinity)
    best.id = static_cast<int32_t>(std::find(logits + best_start, logits + vocab, best.logit) - logits);
  return best;
}

// The k best tokens in `found` (size vocab), unordered but for the last, which is the worst of them. Returns how many
// there are: fewer than k if not enough logits are above -inf.
int select_best(const float* logits, int vocab, int k, Candidate* found) {
  // Up to 2k are gathered before the worse half is dropped, which costs O(1) per logit even if they come in rising order.
  const int room = static_cast<int>(std::min<int64_t>(vocab, std::max<int64_t>(2 * static_cast<int64_t>(k), 64)));
  int count = 0;
  float floor = -kInfinity;  // later ids lose against an equal logit, so only what is above can enter
  const auto reduce = [&] {
    std::nth_element(found, found + (k - 1), found + count, better);
    floor = found[k - 1].logit;
    count = k;
  };
  for (int start = 0; start < vocab; start += kBlock) {
    const int end = std::min(start + kBlock, vocab);
    if (!(block_max(logits + start, end - start) > floor)) continue;
    for (int id = start; id < end; ++id) {
      if (!(logits[id] > floor)) continue;
      if (count == room) reduce();
      if (logits[id] > floor) found[count++] = {logits[id], id};
    }
  }
  if (count > k) reduce();
  if (count > 0) std::iter_swap(std::max_element(found, found + count, better), found + (count - 1));
  return count;
}

// A weight in [0, 1] as an integer in units of 2^-40: added to 2^52, a double keeps just those bits, rounded to nearest.
inline uint64_t integer_weight(float weight) {
  return std::bit_cast<uint64_t>(static_cast<double>(weight) * 0x1p40 + 0x1p52) & ((uint64_t{1} << 52) - 1);
}

uint64_t integer_sum(const float* weights, int n) {
  uint64_t sum = 0;
  for (int i = 0; i < n; ++i) sum += integer_weight(weights[i]);
  return sum;
}

// log of the sum of exp(x - best) over a row.
double log_sum(const float* x, int vocab, float best) {
  if (best == kInfinity) return log_positive(static_cast<double>(std::count(x, x + vocab, kInfinity)));
  float weights[kBlock];
  uint64_t mass = 0;
  for (int start = 0; start < vocab; start += kBlock) {
    const int n = std::min(kBlock, vocab - start);
    for (int i = 0; i < n; ++i) weights[i] = exp_float(x[start + i] - best);
    mass += integer_sum(weights, n);
  }
  return log_positive(static_cast<double>(mass) * 0x1p-40);
}

// What turns the logits of a row into log probabilities.
struct Normalizer {
  Normalizer(const float* raw, int vocab)
      : best(argmax(raw, vocab).logit), log_of_sum(best > -kInfinity ? log_sum(raw, vocab, best) : 0.0) {}

  float log_probability(float logit) const {
    if (!(logit > -kInfinity)) return -kInfinity;
    const double distance = logit == best ? 0.0 : static_cast<double>(logit) - best;
    return static_cast<float>(distance - log_of_sum);
  }

  float best;
  double log_of_sum;
};

void write_top(const float* raw, int vocab, const Normalizer& normalizer, int asked, int32_t* ids, float* logprobs,
               int width, Candidate* found) {
  const int k = std::min({asked, width, vocab});
  const int count = k > 0 ? select_best(raw, vocab, k, found) : 0;
  std::sort(found, found + count, better);
  for (int i = 0; i < width; ++i) {
    ids[i] = i < count ? found[i].id : -1;
    logprobs[i] = i < count ? normalizer.log_probability(found[i].logit) : -kInfinity;
  }
}

bool in_vocabulary(int32_t id, int vocab) { return id >= 0 && id < vocab; }

void add_bias(float* logits, int vocab, const SamplingBatch& batch, int r) {
  for (int i = batch.bias_starts[r]; i < batch.bias_starts[r + 1]; ++i)
    if (in_vocabulary(batch.bias_ids[i], vocab)) logits[batch.bias_ids[i]] += batch.bias_values[i];
}

// Repetition penalty by the rule of CTRL (Keskar et al., 2019) as Transformers has it; the other two are OpenAI's.
void penalise_history(float* logits, int vocab, const SamplingBatch& batch, int r) {
  const float repetition = batch.repetition_penalty[r];
  const float presence = batch.presence_penalty[r], frequency = batch.frequency_penalty[r];
  if (repetition == 1.0f && presence == 0.0f && frequency == 0.0f) return;
  for (int i = batch.history_starts[r]; i < batch.history_starts[r + 1]; ++i) {
    const int32_t id = batch.history_ids[i], count = batch.history_counts[i];
    if (!in_vocabulary(id, vocab)) continue;
    float x = logits[id];
    if (!(x > -kInfinity)) continue;  // what is banned stays so, whatever the penalty
    if (repetition != 1.0f) x = x > 0.0f ? x / repetition : x * repetition;
    if (count > 0) x -= presence + frequency * static_cast<float>(count);
    logits[id] = x;
  }
}

void apply_mask(float* logits, int vocab, const SamplingBatch& batch, int r) {
  if (batch.mask_rows[r] < 0) return;
  const uint32_t* mask = batch.masks + static_cast<int64_t>(batch.mask_rows[r]) * batch.mask_words;
  for (int start = 0, word = 0; start < vocab; start += 32, ++word) {
    const uint32_t allowed = word < batch.mask_words ? mask[word] : 0u;
    if (allowed == ~0u) continue;
    const int end = std::min(start + 32, vocab);
    for (int id = start; id < end; ++id)
      if (!(allowed >> (id - start) & 1u)) logits[id] = -kInfinity;
  }
}

// The answer for a row without any finite logit: the lowest id that is not banned, or -1.
int32_t lowest_allowed(float* logits, int vocab, const SamplingBatch& batch, int r) {
  std::fill_n(logits, vocab, 0.0f);
  for (int i = batch.bias_starts[r]; i < batch.bias_starts[r + 1]; ++i)
    if (in_vocabulary(batch.bias_ids[i], vocab) && batch.bias_values[i] == -kInfinity)
      logits[batch.bias_ids[i]] = -kInfinity;
  apply_mask(logits, vocab, batch, r);
  return argmax(logits, vocab).id;
}

// w = exp((x - best) * scale) where x >= floor and the result is at least min_p, else 0.
void weigh_part(const float* __restrict x, int n, float best, float scale, float floor, float min_p,
                float* __restrict w) {
  for (int i = 0; i < n; ++i) {
    const float e = exp_float((x[i] - best) * scale);
    const float likely = e >= min_p ? e : 0.0f;
    w[i] = x[i] >= floor ? likely : 0.0f;
  }
}

// Fills weights: exp((logit - best) / temperature) for the tokens down to `last` in rank, of at least min_p; 0 for others.
// Block masses are their integer sums. Returns the total.
uint64_t weigh(const float* logits, int vocab, float best, float temperature, float min_p, Candidate last,
               SamplerScratch& scratch) {
  const float scale = 1.0f / temperature;
  const float above = std::nextafter(last.logit, kInfinity);  // an equal logit ranks behind `last` if its id is higher
  uint64_t total = 0;
  for (int start = 0, block = 0; start < vocab; start += kBlock, ++block) {
    const int n = std::min(kBlock, vocab - start);
    const float* x = logits + start;
    float* w = scratch.weights.data() + start;
    uint64_t mass = 0;
    if (block_max(x, n) >= last.logit) {
      const int split = std::clamp(last.id + 1 - start, 0, n);
      weigh_part(x, split, best, scale, last.logit, min_p, w);
      weigh_part(x + split, n - split, best, scale, above, min_p, w + split);
      mass = integer_sum(w, n);
    } else {
      std::fill_n(w, n, 0.0f);
    }
    scratch.block_mass[block] = mass;
    total += mass;
  }
  return total;
}

// The last token of the smallest prefix by rank whose weights sum to at least `needed` (of `total`).
Candidate nucleus_end(const float* logits, int vocab, uint64_t needed, uint64_t total, SamplerScratch& scratch) {
  // All tokens lighter than this together weigh less than what may be left out, so the nucleus ends before them.
  const uint64_t lightest = std::max<uint64_t>(1, (total - needed) / static_cast<uint64_t>(vocab));
  const float* weights = scratch.weights.data();
  Candidate* found = scratch.candidates.data();
  int count = 0;
  for (int block = 0; block < blocks_of(vocab); ++block) {
    if (scratch.block_mass[block] < lightest) continue;
    const int end = std::min((block + 1) * kBlock, vocab);
    for (int id = block * kBlock; id < end; ++id)
      if (integer_weight(weights[id]) >= lightest) found[count++] = {logits[id], id};
  }
  // Bisection by rank: each round decides on which side of the middle the sum is reached.
  Candidate *low = found, *high = found + count;
  while (high - low > 1) {
    Candidate* middle = low + (high - low) / 2;
    std::nth_element(low, middle, high, better);
    uint64_t mass = 0;
    for (const Candidate* c = low; c < middle; ++c) mass += integer_weight(weights[c->id]);
    if (mass >= needed) {
      high = middle;
    } else {
      needed -= mass;
      low = middle;
    }
  }
  return *low;
}

// The first id in rising order at which the running sum of weights exceeds the random share of the total.
int32_t draw(uint64_t bits, uint64_t total, int vocab, const SamplerScratch& scratch) {
  auto target = static_cast<uint64_t>(static_cast<unsigned __int128>(bits) * total >> kUniformBits);
  int block = 0;
  while (target >= scratch.block_mass[block]) target -= scratch.block_mass[block++];
  int id = block * kBlock;
  for (; id < vocab - 1; ++id) {
    const uint64_t weight = integer_weight(scratch.weights[id]);
    if (target < weight) break;
    target -= weight;
  }
  return id;
}

int32_t choose(float* logits, int vocab, const SamplingBatch& batch, int r, SamplerScratch& scratch) {
  add_bias(logits, vocab, batch, r);
  penalise_history(logits, vocab, batch, r);
  apply_mask(logits, vocab, batch, r);
  const Candidate best = argmax(logits, vocab);
  if (best.id < 0) return lowest_allowed(logits, vocab, batch, r);
  const float temperature = batch.temperature[r];
  const int top_k = batch.top_k[r];
  if (!(temperature >= kGreedyTemperature) || best.logit == kInfinity || top_k == 1) return best.id;

  Candidate last{-kInfinity, -1};
  if (top_k > 0 && top_k < vocab) {
    const int count = select_best(logits, vocab, top_k, scratch.candidates.data());
    last = scratch.candidates[count - 1];
  }
  const float min_p = std::min(batch.min_p[r], 1.0f);  // the best token always stays
  uint64_t total = weigh(logits, vocab, best.logit, temperature, min_p > 0.0f ? min_p : 0.0f, last, scratch);
  const float top_p = batch.top_p[r];
  if (top_p < 1.0f) {
    const double share = std::ceil(std::max(0.0, static_cast<double>(top_p)) * static_cast<double>(total));
    const uint64_t needed = std::clamp<uint64_t>(static_cast<uint64_t>(share), 1, total);
    last = nucleus_end(logits, vocab, needed, total, scratch);
    total = weigh(logits, vocab, best.logit, temperature, min_p > 0.0f ? min_p : 0.0f, last, scratch);
  }
  return draw(random_bits(batch.seed[r], batch.choice[r], batch.position[r]), total, vocab, scratch);
}

}  // namespace

SamplerScratch::SamplerScratch(int vocab)
    : raw(vocab), weights(vocab), block_mass(blocks_of(vocab)), candidates(vocab) {}

void sample_row(float* logits, int vocab, const SamplingBatch& batch, int r, const SampleOutput& out,
                SamplerScratch& scratch) noexcept {
  const int asked = batch.logprobs[r];
  if (asked < 0) {
    out.tokens[r] = choose(logits, vocab, batch, r, scratch);
    return;
  }
  const float* raw = std::copy_n(logits, vocab, scratch.raw.data()) - vocab;
  const Normalizer normalizer(raw, vocab);
  const int64_t top = static_cast<int64_t>(r) * out.top_width;
  write_top(raw, vocab, normalizer, asked, out.top_ids + top, out.top_logprobs + top, out.top_width,
            scratch.candidates.data());
  const int32_t token = choose(logits, vocab, batch, r, scratch);
  out.tokens[r] = token;
  out.logprobs[r] = token < 0 ? -kInfinity : normalizer.log_probability(raw[token]);
}

void score_row(const float* logits, int vocab, const ScoreBatch& batch, int i, SamplerScratch& scratch) noexcept {
  const Normalizer normalizer(logits, vocab);
  const int64_t top = static_cast<int64_t>(i) * batch.top_width;
  write_top(logits, vocab, normalizer, batch.top_width, batch.top_ids + top, batch.top_logprobs + top, batch.top_width,
            scratch.candidates.data());
  batch.logprobs[i] = normalizer.log_probability(logits[batch.targets[i]]);
}

}  // namespace millstream
