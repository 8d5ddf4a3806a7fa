// Scratch memory aligned to cache lines, so that no vector crosses one.
#pragma once
#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace tq::cpu {

class AlignedFloats {
  public:
    // Returns the first `count` numbers. Growing discards the content and makes zeros.
    std::span<float> first(size_t count) {
        if (count > size_) {
            data_.reset(new (std::align_val_t(line)) float[count]());
            size_ = count;
        }
        return {data_.get(), count};
    }

  private:
    static constexpr size_t line = 64; // bytes
    struct Delete {
        void operator()(float* p) const { ::operator delete[](p, std::align_val_t(line)); }
    };
    std::unique_ptr<float[], Delete> data_;
    size_t size_ = 0;
};

} // namespace tq::cpu
