// Numpy arrays behind the sampler's views. The arrays are held by reference, so that a caller may rewrite rows in place
// between steps; what they hold is checked each time a view is made.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "sampler.h"

namespace millstream {

template <class T, int Dims>
using Array = nanobind::ndarray<T, nanobind::ndim<Dims>, nanobind::c_contig, nanobind::device::cpu>;

// Python's SamplingBatch.
struct SamplingArrays {
  Array<const float, 1> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  Array<const int32_t, 1> top_k, logprobs, mask_rows;
  Array<const uint64_t, 1> seed;
  Array<const uint32_t, 1> choice, position;
  Array<const uint32_t, 2> masks;
  Array<const int32_t, 1> bias_starts, bias_ids;
  Array<const float, 1> bias_values;
  Array<const int32_t, 1> history_starts, history_ids, history_counts;

  // Checks the contents that memory safety depends on. Throws value_error. The arrays must outlive the view unchanged.
  SamplingBatch view() const;

  // Throws value_error unless there are `rows` rows and, if there are masks, they are as wide as the vocabulary.
  void require(int rows, int vocab) const;
};

// Python's SampleOutput.
struct OutputArrays {
  Array<int32_t, 1> tokens;
  Array<float, 1> logprobs;
  Array<int32_t, 2> top_ids;
  Array<float, 2> top_logprobs;

  SampleOutput view() const;

  // Throws value_error unless there are `rows` rows, and places for the alternatives that `sampling` asks for.
  void require(int rows, const SamplingArrays& sampling) const;
};

// Python's TokenScores.
struct ScoreArrays {
  Array<const int32_t, 1> rows, targets;
  Array<float, 1> logprobs;
  Array<int32_t, 2> top_ids;
  Array<float, 2> top_logprobs;

  ScoreBatch view() const;
};

void bind_sampler(nanobind::module_& m);

}  // namespace millstream
