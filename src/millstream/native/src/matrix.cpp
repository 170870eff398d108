#include "matrix.h"

#include <cstring>
#include <stdexcept>
#include <vector>

#include "ggml.h"
#include "kernels/half.h"
#include "threads.h"

namespace millstream {

namespace {

Format format_of(GgmlType type, const GgmlTraits& traits) {
    if (type == GgmlType::F32) return Format::F32;
    if (type == GgmlType::F16) return Format::F16;
    if (type == GgmlType::BF16) return Format::BF16;
    if (traits.nibbles) return Format::U4;
    return traits.group == 16 ? Format::I8G16 : Format::I8;
}

// Bytes of a tensor; checks that shape and data agree.
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

// Interleaves 16 rows of integers: q [16][cols] to quads of [16 rows][4].
void interleave_integers(const int8_t* q, int cols, bool nibbles, uint8_t* out) {
    for (int g = 0; g < cols / kGroup; ++g) {
        for (int quad = 0; quad < (nibbles ? 4 : 8); ++quad) {
            for (int lane = 0; lane < kTileRows; ++lane) {
                const int8_t* from = q + static_cast<int64_t>(lane) * cols + g * kGroup + quad * 4;
                for (int j = 0; j < 4; ++j)
                    out[lane * 4 + j] = static_cast<uint8_t>(nibbles ? from[j] | from[j + 16] << 4 : from[j]);
            }
            out += kTileRows * 4;
        }
    }
}

template <class T>
void interleave_floats(const uint8_t* rows, size_t row_bytes, int count, int cols, T* out) {
    for (int lane = 0; lane < count; ++lane) {
        for (int k = 0; k < cols; ++k)
            std::memcpy(out + static_cast<int64_t>(k) * kTileRows + lane, rows + lane * row_bytes + k * sizeof(T), sizeof(T));
    }
}

bool exact_in_half(const float* values, size_t n) {
    for (size_t i = 0; i < n; ++i)
        if (float_to_bits(half_to_float(float_to_half(values[i]))) != float_to_bits(values[i])) return false;
    return true;
}

Buffer<uint8_t> store_scales(const Buffer<float>& from, bool half) {
    const size_t n = from.bytes() / sizeof(float);
    Buffer<uint8_t> out(n * (half ? sizeof(uint16_t) : sizeof(float)));
    if (half) {
        auto* to = reinterpret_cast<uint16_t*>(out.data());
        for (size_t i = 0; i < n; ++i) to[i] = float_to_half(from[i]);
    } else if (n) {
        std::memcpy(out.data(), from.data(), from.bytes());
    }
    return out;
}

// Calls body(begin, end) for pieces of [0, tiles).
template <class Body>
void over_tiles(ThreadPool* pool, int tiles, const Body& body) {
    if (!pool) return body(0, tiles);
    auto region = [&](int) { pool->for_each(tiles, 4, body); };
    pool->run(region);
}

size_t line_padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

float scale_at(const void* scales, bool half, int64_t i) {
    return half ? half_to_float(static_cast<const uint16_t*>(scales)[i]) : static_cast<const float*>(scales)[i];
}

}  // namespace

Matrix::Matrix(const std::string& name, int ggml_type, int64_t rows, int64_t cols, const void* data, size_t bytes,
               ThreadPool* pool) {
    const GgmlTraits* traits = ggml_traits(ggml_type);
    const size_t row_bytes = row_bytes_checked(name, traits, rows, cols, bytes);
    const auto type = static_cast<GgmlType>(ggml_type);
    const auto* source = static_cast<const uint8_t*>(data);
    view_.format = format_of(type, *traits);
    view_.rows = static_cast<int>(rows);
    view_.cols = static_cast<int>(cols);
    view_.tiles = static_cast<int>((rows + kTileRows - 1) / kTileRows);
    view_.groups = static_cast<int>(cols / kGroup);
    const auto tiles = static_cast<size_t>(view_.tiles), columns = static_cast<size_t>(cols);

    if (!integer()) {
        const size_t size = view_.format == Format::F32 ? sizeof(float) : sizeof(uint16_t);
        data_ = Buffer<uint8_t>(tiles * kTileRows * columns * size);
        over_tiles(pool, view_.tiles, [&](int begin, int end) {
            for (int64_t tile = begin; tile < end; ++tile) {
                const int count = static_cast<int>(rows - tile * kTileRows < kTileRows ? rows - tile * kTileRows : kTileRows);
                const uint8_t* from = source + static_cast<size_t>(tile) * kTileRows * row_bytes;
                uint8_t* to = data_.data() + static_cast<size_t>(tile) * kTileRows * columns * size;
                if (size == sizeof(float)) {
                    interleave_floats(from, row_bytes, count, view_.cols, reinterpret_cast<float*>(to));
                } else {
                    interleave_floats(from, row_bytes, count, view_.cols, reinterpret_cast<uint16_t*>(to));
                }
            }
        });
        view_.data = data_.data();
        bytes_ = data_.bytes();
        return;
    }

    const bool nibbles = view_.format == Format::U4;
    const size_t tile_bytes = kTileRows * columns / (nibbles ? 2 : 1);
    const size_t scales_per_row = columns / static_cast<size_t>(traits->group);
    data_ = Buffer<uint8_t>(tiles * tile_bytes);
    Buffer<float> scales(tiles * kTileRows * scales_per_row), mins(traits->has_min ? tiles * kTileRows * scales_per_row : 0);
    over_tiles(pool, view_.tiles, [&](int begin, int end) {
        std::vector<int8_t> q(kTileRows * columns);
        std::vector<float> row_scales(scales_per_row), row_mins(scales_per_row);
        for (int64_t tile = begin; tile < end; ++tile) {
            for (int lane = 0; lane < kTileRows; ++lane) {
                const int64_t row = tile * kTileRows + lane;
                int8_t* lane_q = q.data() + static_cast<size_t>(lane) * columns;
                if (row >= rows) {
                    std::memset(lane_q, 0, columns);
                    continue;
                }
                decode_row(type, source + static_cast<size_t>(row) * row_bytes, view_.cols, lane_q, row_scales.data(),
                           row_mins.data());
                for (size_t g = 0; g < scales_per_row; ++g) {
                    const size_t at = (static_cast<size_t>(tile) * scales_per_row + g) * kTileRows + static_cast<size_t>(lane);
                    scales[at] = row_scales[g];
                    if (traits->has_min) mins[at] = row_mins[g];
                }
            }
            interleave_integers(q.data(), view_.cols, nibbles, data_.data() + static_cast<size_t>(tile) * tile_bytes);
        }
    });
    view_.half_scales = exact_in_half(scales.data(), scales.bytes() / sizeof(float)) &&
                        exact_in_half(mins.data(), mins.bytes() / sizeof(float));
    scales_ = store_scales(scales, view_.half_scales);
    mins_ = store_scales(mins, view_.half_scales);
    view_.data = data_.data();
    view_.scales = scales_.data();
    view_.mins = mins_.data();
    bytes_ = data_.bytes() + scales_.bytes() + mins_.bytes();
}

size_t Matrix::movable_bytes() const {
    if (data_.bytes() >= kHugeBuffer) return 0;
    return line_padded(data_.bytes()) + line_padded(scales_.bytes()) + line_padded(mins_.bytes());
}

uint8_t* Matrix::move_into(uint8_t* to) {
    if (movable_bytes() == 0) return to;
    const auto move = [&](Buffer<uint8_t>& from) -> const uint8_t* {
        if (from.bytes() == 0) return nullptr;
        const uint8_t* at = to;
        std::memcpy(to, from.data(), from.bytes());
        to += line_padded(from.bytes());
        from = Buffer<uint8_t>();
        return at;
    };
    view_.data = move(data_);
    view_.scales = move(scales_);
    view_.mins = move(mins_);
    return to;
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
