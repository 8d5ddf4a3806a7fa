#include "model/stages/ranks/message.h"

namespace tq {

void MessageWriter::append(const void* from, size_t size) {
    const auto* const first = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), first, first + size);
}

} // namespace tq
