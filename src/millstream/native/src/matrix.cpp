#include "matrix.h"

#include <algorithm>
#include <cstring>
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

// A byte for each of the 16 rows of a tile and four inputs.
using Line = uint8_t[kTileRows * 4];

// The integer of input k of a group and a row, as repack_tile stores it.
int unpack_integer(const IntegerLayout& layout, const Line* lines, int lane, int k) {
    const int quad = k / 4, at = lane * 4 + k % 4;
    if (layout.bits == 8) return static_cast<int8_t>(lines[quad][at]);
    const int low = lines[quad % 4][at] >> (quad / 4 * 4) & 15, upper_bits = layout.bits - 4;
    if (upper_bits == 0) return low;
    const int quads = 8 / upper_bits, mask = (1 << upper_bits) - 1;
    const int upper = lines[4 + quad / quads][at] >> (quad % quads * upper_bits) & mask;
    return (low | upper << 4) - layout.offset;
}

struct ScaleAndMin {
    float scale, min;
};

// Those of a row in a part of group `index` of a record, as repack_tile stores them.
ScaleAndMin unpack_scales(const IntegerLayout& layout, const uint8_t* record, int lane, int index, int part) {
    const auto half = [&](int number) {
        uint16_t bits;
        std::memcpy(&bits, record + (number * kTileRows + lane) * 2, sizeof bits);
        return half_to_float(bits);
    };
    float scale = half(0), min = layout.numbers() == 2 ? half(1) : 0.0f;
    if (layout.run > 1) {
        const uint8_t* bytes = record + layout.numbers() * kTileRows * 2 + (index * layout.parts + part) * layout.part_bytes();
        scale *= static_cast<float>(static_cast<int8_t>(bytes[lane]));
        if (layout.numbers() == 2) min *= static_cast<float>(static_cast<int8_t>(bytes[kTileRows + lane]));
    }
    return {scale, layout.minimum == Minimum::Scaled ? -8.0f * scale : min};
}

size_t size_of(Format format) { return format == Format::F32 ? sizeof(float) : sizeof(uint16_t); }

}  // namespace

Matrix::Matrix(const std::string& name, int ggml_type, int64_t rows, int64_t cols, const void* data, size_t bytes) {
    const GgmlTraits* traits = ggml_traits(ggml_type);
    const size_t row_bytes = row_bytes_checked(name, traits, rows, cols, bytes);
    source_ = {static_cast<GgmlType>(ggml_type), static_cast<const uint8_t*>(data), row_bytes};
    view_.format = format_of(source_.type);
    view_.rows = static_cast<int>(rows);
    view_.cols = static_cast<int>(cols);
    view_.tiles = static_cast<int>((rows + kTileRows - 1) / kTileRows);
    view_.groups = static_cast<int>(cols / kGroup);
}

size_t Matrix::data_bytes() const {
    const size_t weights = static_cast<size_t>(view_.tiles) * kTileRows * static_cast<size_t>(view_.cols);
    if (!integer()) return weights * size_of(view_.format);
    return weights * static_cast<size_t>(layout_of(view_.format).bits) / 8;
}

size_t Matrix::scale_bytes() const {
    if (!integer()) return 0;
    const IntegerLayout layout = layout_of(view_.format);
    return static_cast<size_t>(view_.tiles) * static_cast<size_t>(view_.groups / layout.run * layout.record_bytes());
}

size_t Matrix::placed_bytes() const { return line_padded(data_bytes()) + line_padded(scale_bytes()); }

uint8_t* Matrix::place(uint8_t* to) {
    const auto next = [&](size_t bytes) -> uint8_t* {
        uint8_t* at = to;
        to += line_padded(bytes);
        return bytes ? at : nullptr;
    };
    view_.data = next(data_bytes());
    view_.scales = next(scale_bytes());
    return to;
}

void Matrix::place_alone() {
    own_ = Buffer<uint8_t>(placed_bytes());
    place(own_.data());
}

void Matrix::repack(int begin, int end) {
    // The views' memory is the matrix's own; what is const about it is that kernels only read.
    const size_t tiles = static_cast<size_t>(view_.tiles), data_step = data_bytes() / tiles, scale_step = scale_bytes() / tiles;
    const auto tile_of = [](const uint8_t* all, size_t step, int tile) {
        return all ? const_cast<uint8_t*>(all) + static_cast<size_t>(tile) * step : nullptr;
    };
    for (int tile = begin; tile < end; ++tile) {
        const int64_t first = int64_t{tile} * kTileRows;
        const int count = static_cast<int>(std::min<int64_t>(view_.rows - first, kTileRows));
        repack_tile(source_, first, count, view_.cols,
                    {tile_of(view_.data, data_step, tile), tile_of(view_.scales, scale_step, tile)});
    }
}

Matrix Matrix::alone(const std::string& name, int ggml_type, int64_t rows, int64_t cols, const void* data, size_t bytes) {
    Matrix matrix(name, ggml_type, rows, cols, data, bytes);
    matrix.place_alone();
    matrix.repack(0, matrix.tiles());
    return matrix;
}

size_t Matrix::source_bytes(int begin, int end) const {
    const int64_t rows = std::min<int64_t>(int64_t{end} * kTileRows, view_.rows) - int64_t{begin} * kTileRows;
    return static_cast<size_t>(rows) * source_.row_bytes;
}

void Matrix::dequantize_row(int r, float* out) const {
    const int64_t tile = r / kTileRows;
    const int lane = r % kTileRows;
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
    const IntegerLayout layout = layout_of(w.format);
    for (int g = 0; g < w.groups; ++g) {
        const int64_t group = tile * w.groups + g;
        const auto* lines = reinterpret_cast<const Line*>(w.data + group * layout.group_bytes());
        const uint8_t* record = w.scales + group / layout.run * layout.record_bytes();
        for (int part = 0; part < layout.parts; ++part) {
            const ScaleAndMin s = unpack_scales(layout, record, lane, g % layout.run, part);
            const int part_size = kGroup / layout.parts;
            for (int k = part * part_size; k < (part + 1) * part_size; ++k) {
                const float value = s.scale * static_cast<float>(unpack_integer(layout, lines, lane, k));
                out[g * kGroup + k] = layout.minimum == Minimum::None ? value : value + s.min;
            }
        }
    }
}

}  // namespace millstream
