// A weight matrix in the core's own layout, made from a GGUF tensor without loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "buffer.h"
#include "kernels/views.h"

namespace millstream {

class ThreadPool;

class Matrix {
public:
    Matrix() = default;

    // Repacks `data` of `bytes` bytes. Throws std::invalid_argument, with `name` in the message, if the type is not
    // supported or sizes do not fit together. `pool` may be null.
    Matrix(const std::string& name, int ggml_type, int64_t rows, int64_t cols, const void* data, size_t bytes,
           ThreadPool* pool);

    const MatrixView& view() const { return view_; }
    bool empty() const { return view_.data == nullptr; }
    int rows() const { return view_.rows; }
    int cols() const { return view_.cols; }
    int tiles() const { return view_.tiles; }

    // Whether products with this matrix take quantised activations.
    bool integer() const { return view_.format <= Format::I8G16; }

    size_t bytes() const { return bytes_; }

    // Bytes that move_into takes: 0 for a matrix that is large enough for huge pages of its own.
    size_t movable_bytes() const;

    // Moves the contents to `to`, which must outlive the matrix, and frees the memory they were in. Returns the end.
    uint8_t* move_into(uint8_t* to);

    // out[cols] = row r, as scale * q + min rounded to f32.
    void dequantize_row(int r, float* out) const;

private:
    MatrixView view_{};
    size_t bytes_ = 0;
    Buffer<uint8_t> data_, scales_, mins_;
};

}  // namespace millstream
