#include "model/gpu/taps.h"

namespace tq::gpu {

void Taps::add(Pass& pass, std::string name, const View& x, uint32_t cols) {
    if (!on()) return;
    const uint64_t bytes = 4ull * cols * pass.tokens;
    Buffer values = device_->allocate("tap " + name, bytes, Memory::readback);
    pass.recorder.copy(values, View(*x.buffer, x.offset, bytes));
    copies_.push_back({std::move(name), cols, std::move(values)});
}

void Taps::deliver(uint32_t tokens) const {
    for (const Copy& copy : copies_)
        (*tap_)(copy.name, {reinterpret_cast<const float*>(copy.values.host().data()), size_t(copy.cols) * tokens});
}

} // namespace tq::gpu
