// Python bindings of the native core; _core.pyi documents what they promise.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>

#include "bindings_sampler.h"
#include "model.h"
#include "spec_reader.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace millstream {
namespace {

// The bytes of any object with the buffer protocol, held while the GIL is released.
class ReadableBuffer {
public:
    explicit ReadableBuffer(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_C_CONTIGUOUS) != 0) throw nb::python_error();
    }
    ~ReadableBuffer() { PyBuffer_Release(&buffer_); }
    ReadableBuffer(const ReadableBuffer&) = delete;
    ReadableBuffer& operator=(const ReadableBuffer&) = delete;

    const void* data() const { return buffer_.buf; }
    size_t size() const { return static_cast<size_t>(buffer_.len); }

private:
    Py_buffer buffer_{};
};

template <class T>
std::span<const T> span_of(const Array<const T, 1>& array) {
    return {array.data(), array.shape(0)};
}

using FloatMatrix = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

// A new numpy array [rows, cols] around memory that it owns.
FloatMatrix to_numpy(std::unique_ptr<float[]> data, size_t rows, size_t cols) {
    float* p = data.release();
    nb::capsule owner(p, [](void* memory) noexcept { delete[] static_cast<float*>(memory); });
    return FloatMatrix(p, {rows, cols}, owner);
}

std::vector<std::string> isa_levels() {
    int count = 0;
    const Kernels* const* levels = kernel_levels(&count);
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) names.emplace_back(levels[i]->name);
    return names;
}

// Where `count` strings of a GGUF file end that begin at `at`: a length of 64 bits, little-endian, is before each. None if
// that is not in the buffer.
std::optional<size_t> strings_end(nb::handle data, size_t at, size_t count) {
    const ReadableBuffer buffer(data);
    const auto* bytes = static_cast<const uint8_t*>(buffer.data());
    for (size_t i = 0; i < count; ++i) {
        if (at > buffer.size() || buffer.size() - at < 8) return std::nullopt;
        uint64_t length = 0;
        for (int b = 7; b >= 0; --b) length = length << 8 | bytes[at + static_cast<size_t>(b)];
        at += 8;
        if (length > buffer.size() - at) return std::nullopt;
        at += length;
    }
    return at;
}

FloatMatrix dequantize(int ggml_type, int64_t rows, int64_t cols, nb::handle data) {
    const ReadableBuffer buffer(data);
    const Matrix matrix = Matrix::alone("tensor", ggml_type, rows, cols, buffer.data(), buffer.size());
    const auto width = static_cast<size_t>(cols);
    auto out = std::make_unique<float[]>(static_cast<size_t>(rows) * width);
    for (int r = 0; r < matrix.rows(); ++r) matrix.dequantize_row(r, out.get() + static_cast<size_t>(r) * width);
    return to_numpy(std::move(out), static_cast<size_t>(rows), width);
}

ActivationType read_activations(const std::string& name) {
    if (name == "int12") return ActivationType::I12;
    if (name == "int8") return ActivationType::I8;
    throw nb::value_error("activations must be int12 or int8");
}

FloatMatrix matmul(int ggml_type, int64_t rows, int64_t cols, nb::handle data, const Array<const float, 2>& x,
                   const std::string& type) {
    const ReadableBuffer buffer(data);
    const Matrix matrix = Matrix::alone("tensor", ggml_type, rows, cols, buffer.data(), buffer.size());
    if (x.shape(1) != static_cast<size_t>(cols)) throw nb::value_error("x must have one column per column of the tensor");
    if (x.shape(0) > 1 << 20) throw nb::value_error("x has too many rows");
    const Kernels& kernels = active_kernels();
    const int n = static_cast<int>(x.shape(0));
    const ActivationBuffer activations(read_activations(type), n, matrix.cols());
    const ActivationsView a = activations.view(matrix.cols());
    for (int i = 0; i < n; ++i)
        std::copy_n(x.data() + static_cast<int64_t>(i) * cols, cols, a.f32 + i * a.stride);
    if (matrix.integer()) kernels.quantize(a, 0, n, 0, a.groups);
    const int64_t stride = int64_t{matrix.tiles()} * kTileRows;
    const Buffer<float> padded(static_cast<size_t>(n) * static_cast<size_t>(stride));
    kernels.matmul(matrix.view(), 0, matrix.tiles(), a, 0, n, padded.data(), stride);
    auto out = std::make_unique<float[]>(static_cast<size_t>(n) * static_cast<size_t>(rows));
    for (int i = 0; i < n; ++i) std::copy_n(padded.data() + i * stride, rows, out.get() + i * rows);
    return to_numpy(std::move(out), static_cast<size_t>(n), static_cast<size_t>(rows));
}

KvType read_kv_type(const std::string& name) {
    if (name == "f16") return KvType::F16;
    if (name == "int8") return KvType::I8;
    throw nb::value_error("kv_type must be f16 or int8");
}

void load(Model& model, nb::iterable tensors, bool mapped) {
    std::deque<ReadableBuffer> buffers;
    std::vector<TensorSource> sources;
    for (nb::handle item : tensors) {
        const auto [layer, slot, ggml_type, rows, cols, data] =
            nb::cast<std::tuple<int, std::string, int, int64_t, int64_t, nb::object>>(item);
        const ReadableBuffer& buffer = buffers.emplace_back(data);
        sources.push_back({layer, slot, ggml_type, rows, cols, static_cast<const uint8_t*>(buffer.data()), buffer.size()});
    }
    const nb::gil_scoped_release release;
    model.load(sources, mapped);
}

void step(Model& model, const Array<const int32_t, 1>& tokens, const Array<const int32_t, 1>& seq_starts,
          const Array<const int32_t, 1>& seq_positions, const Array<const int32_t, 2>& block_tables,
          const Array<const int32_t, 1>& sample_rows, const SamplingArrays* sampling, const OutputArrays* out,
          const std::optional<Array<float, 2>>& logits, const std::optional<Array<const int32_t, 1>>& hidden_rows,
          const std::optional<Array<float, 2>>& hidden, const ScoreArrays* scores) {
    const size_t rows = sample_rows.shape(0);
    if (rows > 1 << 20) throw nb::value_error("sample_rows has too many entries");
    if ((sampling == nullptr) != (out == nullptr)) throw nb::value_error("sampling and out go together");
    if (sampling) {
        sampling->require(static_cast<int>(rows), model.vocab());
        out->require(static_cast<int>(rows), *sampling);
    }
    if (logits && (logits->shape(0) != rows || logits->shape(1) != static_cast<size_t>(model.vocab())))
        throw nb::value_error("logits must be [sample rows, vocabulary]");
    if (hidden_rows.has_value() != hidden.has_value()) throw nb::value_error("hidden and hidden_rows go together");
    if (hidden && (hidden->shape(0) != hidden_rows->shape(0) || hidden->shape(1) != static_cast<size_t>(model.hidden())))
        throw nb::value_error("hidden must be [hidden rows, hidden size]");
    if (block_tables.shape(0) != seq_positions.shape(0)) throw nb::value_error("block_tables must have one row per sequence");
    if (block_tables.shape(1) > 1 << 26) throw nb::value_error("block_tables is too wide");
    const StepInput input{.tokens = span_of(tokens),
                          .seq_starts = span_of(seq_starts),
                          .seq_positions = span_of(seq_positions),
                          .block_tables = {block_tables.data(), block_tables.size()},
                          .sample_rows = span_of(sample_rows),
                          .hidden_rows = hidden_rows ? span_of(*hidden_rows) : std::span<const int32_t>{},
                          .table_width = static_cast<int>(block_tables.shape(1)),
                          .sampling = sampling ? sampling->view() : SamplingBatch{},
                          .out = out ? out->view() : SampleOutput{},
                          .scores = scores ? scores->view() : ScoreBatch{},
                          .logits = logits ? logits->data() : nullptr,
                          .hidden = hidden ? hidden->data() : nullptr,
                          .keep_logits = sampling == nullptr};
    const nb::gil_scoped_release release;
    model.step(input);
}

void sample_kept_logits(Model& model, const SamplingArrays& sampling, const OutputArrays& out) {
    const int rows = static_cast<int>(sampling.temperature.shape(0));
    sampling.require(rows, model.vocab());
    out.require(rows, sampling);
    const SamplingBatch batch = sampling.view();
    const SampleOutput output = out.view();
    const nb::gil_scoped_release release;
    model.sample(batch, output);
}

}  // namespace
}  // namespace millstream

NB_MODULE(_core, m) {
    using namespace millstream;
    m.attr("BLOCK_SIZE") = kBlockSize;
    m.def("isa_levels", &isa_levels);
    m.def("active_isa", [] { return active_kernels().name; });
    m.def("default_threads", &default_threads);
    m.def("strings_end", &strings_end, "data"_a, "at"_a, "count"_a);
    m.def("dequantize", &dequantize, "ggml_type"_a, "rows"_a, "cols"_a, "data"_a);
    m.def("matmul", &millstream::matmul, "ggml_type"_a, "rows"_a, "cols"_a, "data"_a, "x"_a,
          "activations"_a = "int12");
    bind_sampler(m);

    nb::class_<Model>(m, "Model")
        .def(
            "__init__",
            [](Model* self, nb::handle spec, int kv_blocks, int max_tokens, int max_rows, int threads,
               const std::string& kv_type, const std::string& activations) {
                new (self) Model(read_spec(spec), {kv_blocks, max_tokens, max_rows, threads, read_kv_type(kv_type),
                                                   read_activations(activations)});
            },
            "spec"_a, nb::kw_only(), "kv_blocks"_a, "max_tokens"_a, "max_rows"_a, "threads"_a = 0, "kv_type"_a = "f16",
            "activations"_a = "int12")
        .def("load", &millstream::load, "tensors"_a, nb::kw_only(), "mapped"_a = false)
        .def_prop_ro("threads", &Model::threads)
        .def_prop_ro("progress", &Model::progress)
        .def_prop_ro("weight_bytes", &Model::weight_bytes)
        .def_prop_ro("kv_bytes", &Model::kv_bytes)
        .def("step", &millstream::step, "tokens"_a.noconvert(), "seq_starts"_a.noconvert(), "seq_positions"_a.noconvert(),
             "block_tables"_a.noconvert(), "sample_rows"_a.noconvert(), "sampling"_a.none(), "out"_a.none(),
             "logits"_a.noconvert() = nb::none(), "hidden_rows"_a.noconvert() = nb::none(),
             "hidden"_a.noconvert() = nb::none(), "scores"_a.none() = nb::none())
        .def("sample", &sample_kept_logits, "sampling"_a, "out"_a);
}
