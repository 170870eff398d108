#include "matrix.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/half.h"

namespace millstream {

namespace {

// Bytes of a row; checks that shape and data agree.
size_t row_bytes_checked(const std::string& name, const GgmlTraits* traits, int64_t rows, int64_t cols, size_t bytes) {
    const auto fail = [&](const std::string& why) { throw std::invalid_argument(name + ": " + why); };
    if (!traits) fail("tensor type is not supported");
    if (rows < 1 || cols < 1 || rows > (1 << 28) || cols > (1 << 28)) fail("shape is out of range");
    if (cols % traits->block_size != 0)
        fail(std::to_string(cols) + " columns are not a multiple of the block of " + traits->name);
    const int64_t row_bytes = cols / traits->block_size * traits->block_bytes;
    int64_t expected = 0;
    if (__builtin_mul_overflow(rows, row_bytes, &expected)) fail("shape is out of range");
    if (static_cast<uint64_t>(expected) != bytes)
        fail(std::to_string(bytes) + " bytes of data, " + std::to_string(expected) + " expected");
    return static_cast<size_t>(row_bytes);
}

size_t line_padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

float scale_at(const void* scales, bool half, int64_t i) {
    return half ? half_to_float(static_cast<const uint16_t*>(scales)[i]) : static_cast<const float*>(scales)[i];
}

size_t size_of(Format format) { return format == Format::F32 ? sizeof(float) : sizeof(uint16_t); }

}  // namespace

Matrix::Matrix(const std::string& name, int ggml_type, int64_t rows, int64_t cols, const void* data, size_t bytes) {
    const GgmlTraits* traits = ggml_traits(ggml_type);
    const size_t row_bytes = row_bytes_checked(name, traits, rows, cols, bytes);
    source_ = {static_cast<GgmlType>(ggml_type), static_cast<const uint8_t*>(data), row_bytes};
    has_min_ = traits->has_min;
    view_.format = format_of(source_.type);
    view_.rows = static_cast<int>(rows);
    view_.cols = static_cast<int>(cols);
    view_.tiles = static_cast<int>((rows + kTileRows - 1) / kTileRows);
    view_.groups = static_cast<int>(cols / kGroup);
    view_.half_scales = integer() && has_half_scales(source_.type);
}

size_t Matrix::data_bytes() const {
    const size_t weights = static_cast<size_t>(view_.tiles) * kTileRows * static_cast<size_t>(view_.cols);
    if (!integer()) return weights * size_of(view_.format);
    return view_.format == Format::U4 ? weights / 2 : weights;
}

size_t Matrix::scale_bytes() const {
    if (!integer()) return 0;
    const size_t groups = static_cast<size_t>(view_.tiles) * kTileRows * static_cast<size_t>(view_.groups);
    return groups * (view_.format == Format::I8G16 ? 2 : 1) * (view_.half_scales ? sizeof(uint16_t) : sizeof(float));
}

size_t Matrix::placed_bytes() const {
    return line_padded(data_bytes()) + line_padded(scale_bytes()) + line_padded(min_bytes());
}

uint8_t* Matrix::place(uint8_t* to) {
    const auto next = [&](size_t bytes) -> uint8_t* {
        uint8_t* at = to;
        to += line_padded(bytes);
        return bytes ? at : nullptr;
    };
    view_.data = next(data_bytes());
    view_.scales = next(scale_bytes());
    view_.mins = next(min_bytes());
    return to;
}

void Matrix::place_alone() {
    own_ = Buffer<uint8_t>(placed_bytes());
    place(own_.data());
}

bool Matrix::repack(int begin, int end) {
    // The views' memory is the matrix's own; what is const about it is that kernels only read.
    const size_t tiles = static_cast<size_t>(view_.tiles), data_step = data_bytes() / tiles, scale_step = scale_bytes() / tiles;
    const auto tile_of = [](const void* all, size_t step, int tile) {
        return all ? static_cast<uint8_t*>(const_cast<void*>(all)) + static_cast<size_t>(tile) * step : nullptr;
    };
    bool exact = true;
    for (int tile = begin; tile < end; ++tile) {
        const int64_t first = int64_t{tile} * kTileRows;
        const int count = static_cast<int>(std::min<int64_t>(view_.rows - first, kTileRows));
        const TilePlace to{tile_of(view_.data, data_step, tile), tile_of(view_.scales, scale_step, tile),
                           tile_of(view_.mins, scale_step, tile), view_.half_scales};
        exact &= repack_tile(source_, first, count, view_.cols, to);
    }
    return exact;
}

void Matrix::widen() {
    view_.half_scales = false;
    place_alone();
    repack(0, view_.tiles);
}

Matrix Matrix::alone(const std::string& name, int ggml_type, int64_t rows, int64_t cols, const void* data, size_t bytes) {
    Matrix matrix(name, ggml_type, rows, cols, data, bytes);
    matrix.place_alone();
    if (!matrix.repack(0, matrix.tiles())) matrix.widen();
    return matrix;
}

size_t Matrix::source_bytes(int begin, int end) const {
    const int64_t rows = std::min<int64_t>(int64_t{end} * kTileRows, view_.rows) - int64_t{begin} * kTileRows;
    return static_cast<size_t>(rows) * source_.row_bytes;
}

void Matrix::dequantize_row(int r, float* out) const {
    const int64_t tile = r / kTileRows, lane = r % kTileRows;
    const MatrixView& w = view_;
    if (!integer()) {
        const int64_t base = tile * w.cols * kTileRows + lane;
        for (int k = 0; k < w.cols; ++k) {
            const int64_t at = base + static_cast<int64_t>(k) * kTileRows;
            if (w.format == Format::F32) {
                out[k] = reinterpret_cast<const float*>(w.data)[at];
            } else {
                const uint16_t bits = reinterpret_cast<const uint16_t*>(w.data)[at];
                out[k] = w.format == Format::F16 ? half_to_float(bits) : bfloat_to_float(bits);
            }
        }
        return;
    }
    const bool nibbles = w.format == Format::U4, split = w.format == Format::I8G16;
    for (int k = 0; k < w.cols; ++k) {
        const int64_t group = tile * w.groups + k / kGroup;
        const int in_group = k % kGroup;
        const int quad = nibbles ? in_group / 4 % 4 : in_group / 4;
        const uint8_t byte = w.data[group * (nibbles ? 256 : 512) + (quad * kTileRows + lane) * 4 + in_group % 4];
        const int q = nibbles ? (in_group < 16 ? byte & 15 : byte >> 4) : static_cast<int8_t>(byte);
        const int64_t at = (split ? group * 2 + in_group / 16 : group) * kTileRows + lane;
        const float value = scale_at(w.scales, w.half_scales, at) * static_cast<float>(q);
        out[k] = w.mins ? value + scale_at(w.mins, w.half_scales, at) : value;
    }
}

}  // namespace millstream
