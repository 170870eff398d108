#include "bindings_sampler.h"

#include <algorithm>
#include <climits>
#include <string>
#include <vector>

#include "philox.h"

namespace nb = nanobind;

namespace millstream {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw nb::value_error(what.c_str()); }

template <class T>
constexpr const char* kTypeName = nullptr;
template <>
constexpr const char* kTypeName<float> = "float32";
template <>
constexpr const char* kTypeName<int32_t> = "int32";
template <>
constexpr const char* kTypeName<uint32_t> = "uint32";
template <>
constexpr const char* kTypeName<uint64_t> = "uint64";

// Takes an array as it is: a conversion would copy, and the caller's later changes would be lost.
template <class T, int Dims>
Array<T, Dims> array(nb::handle object, const char* name) {
  Array<T, Dims> out;
  if (!nb::try_cast(object, out, false))
    refuse(std::string(name) + ": expected a C-contiguous " + kTypeName<std::remove_const_t<T>> + " array of " +
           std::to_string(Dims) + (Dims == 1 ? " dimension" : " dimensions") + (std::is_const_v<T> ? "" : ", writable"));
  for (size_t d = 0; d < Dims; ++d)
    if (out.shape(d) > INT_MAX) refuse(std::string(name) + ": too large");
  return out;
}

void expect_size(size_t size, size_t expected, const char* name) {
  if (size != expected)
    refuse(std::string(name) + ": expected " + std::to_string(expected) + " entries, got " + std::to_string(size));
}

int size_of(const auto& array) { return static_cast<int>(array.shape(0)); }

void check_starts(const Array<const int32_t, 1>& starts, int entries, const char* name) {
  const int32_t* s = starts.data();
  const int rows = size_of(starts) - 1;
  bool ordered = s[0] >= 0 && s[rows] <= entries;
  for (int r = 0; r < rows; ++r) ordered &= s[r] <= s[r + 1];
  if (!ordered) refuse(std::string(name) + ": must rise from 0 or more to " + std::to_string(entries) + " at most");
}

void check_sizes(const SamplingArrays& a) {
  const size_t rows = a.temperature.shape(0);
  expect_size(a.top_k.shape(0), rows, "top_k");
  expect_size(a.top_p.shape(0), rows, "top_p");
  expect_size(a.min_p.shape(0), rows, "min_p");
  expect_size(a.repetition_penalty.shape(0), rows, "repetition_penalty");
  expect_size(a.presence_penalty.shape(0), rows, "presence_penalty");
  expect_size(a.frequency_penalty.shape(0), rows, "frequency_penalty");
  expect_size(a.seed.shape(0), rows, "seed");
  expect_size(a.choice.shape(0), rows, "choice");
  expect_size(a.position.shape(0), rows, "position");
  expect_size(a.logprobs.shape(0), rows, "logprobs");
  expect_size(a.mask_rows.shape(0), rows, "mask_rows");
  expect_size(a.bias_starts.shape(0), rows + 1, "bias_starts");
  expect_size(a.bias_values.shape(0), a.bias_ids.shape(0), "bias_values");
  expect_size(a.history_starts.shape(0), rows + 1, "history_starts");
  expect_size(a.history_counts.shape(0), a.history_ids.shape(0), "history_counts");
}

void make_sampling(SamplingArrays* self, nb::handle temperature, nb::handle top_k, nb::handle top_p, nb::handle min_p,
                   nb::handle repetition_penalty, nb::handle presence_penalty, nb::handle frequency_penalty,
                   nb::handle seed, nb::handle choice, nb::handle position, nb::handle logprobs, nb::handle mask_rows,
                   nb::handle masks, nb::handle bias_starts, nb::handle bias_ids, nb::handle bias_values,
                   nb::handle history_starts, nb::handle history_ids, nb::handle history_counts) {
  SamplingArrays a{
      .temperature = array<const float, 1>(temperature, "temperature"),
      .top_p = array<const float, 1>(top_p, "top_p"),
      .min_p = array<const float, 1>(min_p, "min_p"),
      .repetition_penalty = array<const float, 1>(repetition_penalty, "repetition_penalty"),
      .presence_penalty = array<const float, 1>(presence_penalty, "presence_penalty"),
      .frequency_penalty = array<const float, 1>(frequency_penalty, "frequency_penalty"),
      .top_k = array<const int32_t, 1>(top_k, "top_k"),
      .logprobs = array<const int32_t, 1>(logprobs, "logprobs"),
      .mask_rows = array<const int32_t, 1>(mask_rows, "mask_rows"),
      .seed = array<const uint64_t, 1>(seed, "seed"),
      .choice = array<const uint32_t, 1>(choice, "choice"),
      .position = array<const uint32_t, 1>(position, "position"),
      .masks = array<const uint32_t, 2>(masks, "masks"),
      .bias_starts = array<const int32_t, 1>(bias_starts, "bias_starts"),
      .bias_ids = array<const int32_t, 1>(bias_ids, "bias_ids"),
      .bias_values = array<const float, 1>(bias_values, "bias_values"),
      .history_starts = array<const int32_t, 1>(history_starts, "history_starts"),
      .history_ids = array<const int32_t, 1>(history_ids, "history_ids"),
      .history_counts = array<const int32_t, 1>(history_counts, "history_counts"),
  };
  check_sizes(a);
  new (self) SamplingArrays(std::move(a));
}

void make_output(OutputArrays* self, nb::handle tokens, nb::handle logprobs, nb::handle top_ids,
                 nb::handle top_logprobs) {
  OutputArrays a{
      .tokens = array<int32_t, 1>(tokens, "tokens"),
      .logprobs = array<float, 1>(logprobs, "logprobs"),
      .top_ids = array<int32_t, 2>(top_ids, "top_ids"),
      .top_logprobs = array<float, 2>(top_logprobs, "top_logprobs"),
  };
  expect_size(a.logprobs.shape(0), a.tokens.shape(0), "logprobs");
  expect_size(a.top_ids.shape(0), a.tokens.shape(0), "top_ids");
  expect_size(a.top_logprobs.shape(0), a.tokens.shape(0), "top_logprobs");
  expect_size(a.top_logprobs.shape(1), a.top_ids.shape(1), "top_logprobs (width)");
  new (self) OutputArrays(std::move(a));
}

void make_scores(ScoreArrays* self, nb::handle rows, nb::handle targets, nb::handle logprobs, nb::handle top_ids,
                 nb::handle top_logprobs) {
  ScoreArrays a{
      .rows = array<const int32_t, 1>(rows, "rows"),
      .targets = array<const int32_t, 1>(targets, "targets"),
      .logprobs = array<float, 1>(logprobs, "logprobs"),
      .top_ids = array<int32_t, 2>(top_ids, "top_ids"),
      .top_logprobs = array<float, 2>(top_logprobs, "top_logprobs"),
  };
  expect_size(a.targets.shape(0), a.rows.shape(0), "targets");
  expect_size(a.logprobs.shape(0), a.rows.shape(0), "logprobs");
  expect_size(a.top_ids.shape(0), a.rows.shape(0), "top_ids");
  expect_size(a.top_logprobs.shape(0), a.rows.shape(0), "top_logprobs");
  expect_size(a.top_logprobs.shape(1), a.top_ids.shape(1), "top_logprobs (width)");
  new (self) ScoreArrays(std::move(a));
}

void sample(nb::handle logits_object, const SamplingArrays& sampling, const OutputArrays& out) {
  const auto logits = array<const float, 2>(logits_object, "logits");
  const int rows = size_of(logits), vocab = static_cast<int>(logits.shape(1));
  if (vocab < 1) refuse("logits: the vocabulary is empty");
  sampling.require(rows, vocab);
  out.require(rows, sampling);
  const SamplingBatch batch = sampling.view();
  const SampleOutput output = out.view();
  SamplerScratch scratch(vocab);
  std::vector<float> row(vocab);
  nb::gil_scoped_release unlocked;
  for (int r = 0; r < rows; ++r) {
    std::copy_n(logits.data() + static_cast<int64_t>(r) * vocab, vocab, row.data());
    sample_row(row.data(), vocab, batch, r, output, scratch);
  }
}

double uniform(uint64_t seed, uint32_t choice, uint32_t position) {
  return static_cast<double>(random_bits(seed, choice, position)) * 0x1p-53;
}

}  // namespace

SamplingBatch SamplingArrays::view() const {
  const int rows = size_of(temperature), mask_count = size_of(masks);
  check_starts(bias_starts, size_of(bias_ids), "bias_starts");
  check_starts(history_starts, size_of(history_ids), "history_starts");
  for (int r = 0; r < rows; ++r)
    if (mask_rows.data()[r] >= mask_count) refuse("mask_rows: there are only " + std::to_string(mask_count) + " masks");
  return {
      .rows = rows,
      .mask_words = static_cast<int>(masks.shape(1)),
      .temperature = temperature.data(),
      .top_p = top_p.data(),
      .min_p = min_p.data(),
      .repetition_penalty = repetition_penalty.data(),
      .presence_penalty = presence_penalty.data(),
      .frequency_penalty = frequency_penalty.data(),
      .top_k = top_k.data(),
      .logprobs = logprobs.data(),
      .mask_rows = mask_rows.data(),
      .seed = seed.data(),
      .choice = choice.data(),
      .position = position.data(),
      .masks = masks.data(),
      .bias_starts = bias_starts.data(),
      .bias_ids = bias_ids.data(),
      .bias_values = bias_values.data(),
      .history_starts = history_starts.data(),
      .history_ids = history_ids.data(),
      .history_counts = history_counts.data(),
  };
}

void SamplingArrays::require(int rows, int vocab) const {
  expect_size(temperature.shape(0), rows, "sampling parameters");
  if (masks.shape(0) > 0) expect_size(masks.shape(1), (static_cast<size_t>(vocab) + 31) / 32, "masks (words per row)");
}

SampleOutput OutputArrays::view() const {
  return {
      .tokens = tokens.data(),
      .logprobs = logprobs.data(),
      .top_ids = top_ids.data(),
      .top_logprobs = top_logprobs.data(),
      .top_width = static_cast<int>(top_ids.shape(1)),
  };
}

void OutputArrays::require(int rows, const SamplingArrays& sampling) const {
  expect_size(tokens.shape(0), rows, "output");
  for (int r = 0; r < rows; ++r)
    if (sampling.logprobs.data()[r] > static_cast<int64_t>(top_ids.shape(1)))
      refuse("top_ids: no room for " + std::to_string(sampling.logprobs.data()[r]) + " alternatives");
}

ScoreBatch ScoreArrays::view() const {
  return {
      .count = size_of(rows),
      .top_width = static_cast<int>(top_ids.shape(1)),
      .rows = rows.data(),
      .targets = targets.data(),
      .logprobs = logprobs.data(),
      .top_ids = top_ids.data(),
      .top_logprobs = top_logprobs.data(),
  };
}

void bind_sampler(nb::module_& m) {
  nb::class_<SamplingArrays>(m, "SamplingBatch")
      .def("__init__", &make_sampling, nb::kw_only(), nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"),
           nb::arg("min_p"), nb::arg("repetition_penalty"), nb::arg("presence_penalty"), nb::arg("frequency_penalty"),
           nb::arg("seed"), nb::arg("choice"), nb::arg("position"), nb::arg("logprobs"), nb::arg("mask_rows"),
           nb::arg("masks"), nb::arg("bias_starts"), nb::arg("bias_ids"), nb::arg("bias_values"),
           nb::arg("history_starts"), nb::arg("history_ids"), nb::arg("history_counts"));
  nb::class_<OutputArrays>(m, "SampleOutput")
      .def("__init__", &make_output, nb::kw_only(), nb::arg("tokens"), nb::arg("logprobs"), nb::arg("top_ids"),
           nb::arg("top_logprobs"));
  nb::class_<ScoreArrays>(m, "TokenScores")
      .def("__init__", &make_scores, nb::kw_only(), nb::arg("rows"), nb::arg("targets"), nb::arg("logprobs"),
           nb::arg("top_ids"), nb::arg("top_logprobs"));
  m.def("sample", &sample, nb::arg("logits"), nb::arg("sampling"), nb::arg("out"));
  m.def("philox", &uniform, nb::arg("seed"), nb::arg("choice"), nb::arg("position"));
}

}  // namespace millstream
