// Large zeroed memory straight from the system: untouched pages cost nothing, huge pages where there are any.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace millstream {

// From this size on, memory is asked for in huge pages.
constexpr size_t kHugeBuffer = size_t{8} << 20;

template <class T>
class Buffer {
public:
    Buffer() = default;

    explicit Buffer(size_t count) : bytes_(count * sizeof(T)) {
        if (bytes_ == 0) return;
        if (bytes_ / sizeof(T) != count) throw std::bad_alloc();
        void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
        if (bytes_ >= kHugeBuffer) madvise(p, bytes_, MADV_HUGEPAGE);
#endif
        data_ = static_cast<T*>(p);
    }

    Buffer(Buffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }

    ~Buffer() {
        if (data_) munmap(data_, bytes_);
    }

    T* data() const { return data_; }
    size_t bytes() const { return bytes_; }
    T& operator[](size_t i) const { return data_[i]; }

private:
    T* data_ = nullptr;
    size_t bytes_ = 0;
};

}  // namespace millstream
