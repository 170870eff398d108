// A weight matrix in the core's own layout, made from a GGUF tensor without loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "buffer.h"
#include "kernels/views.h"
#include "repack.h"

namespace millstream {

// Made in three steps, so that all matrices of a model can share memory and the work of repacking: described by the
// constructor, given memory by `place`, filled tile by tile by `repack`.
class Matrix {
public:
    Matrix() = default;

    // A matrix of the tensor in the `bytes` bytes at `data`, which must live until it is filled. Throws
    // std::invalid_argument, with `name` in the message, if the type is not supported or sizes do not fit together.
    Matrix(const std::string& name, int ggml_type, int64_t rows, int64_t cols, const void* data, size_t bytes);

    // Bytes of the contents, and of the memory that `place` takes: each part is aligned to 64 bytes.
    size_t bytes() const { return data_bytes() + scale_bytes(); }
    size_t placed_bytes() const;

    // Contents go to `to`: aligned and zeroed memory that outlives the matrix. Returns its end.
    uint8_t* place(uint8_t* to);

    // Contents go to memory of its own.
    void place_alone();

    // Fills the tiles [begin, end).
    void repack(int begin, int end);

    // All steps in one.
    static Matrix alone(const std::string& name, int ggml_type, int64_t rows, int64_t cols, const void* data, size_t bytes);

    const MatrixView& view() const { return view_; }
    int rows() const { return view_.rows; }
    int cols() const { return view_.cols; }
    int tiles() const { return view_.tiles; }
    size_t tile_bytes() const { return bytes() / static_cast<size_t>(tiles()); }

    // Whether products with this matrix take quantised activations.
    bool integer() const { return is_integer(view_.format); }

    // The tensor's bytes of the tiles [begin, end).
    const uint8_t* source(int begin) const { return source_.data + static_cast<size_t>(begin) * kTileRows * source_.row_bytes; }
    size_t source_bytes(int begin, int end) const;

    // out[cols] = row r, as scale * q + min rounded to f32.
    void dequantize_row(int r, float* out) const;

private:
    size_t data_bytes() const;
    size_t scale_bytes() const;

    MatrixView view_{};
    GgmlRows source_{};
    Buffer<uint8_t> own_;
};

}  // namespace millstream
