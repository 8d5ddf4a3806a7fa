#include "model/speculation/mtp.h"
#include <algorithm>

namespace tq {

Draft MtpDrafter::draft(std::span<const uint32_t> ids, uint32_t most) {
    if (ids.size() < 2 || forward_.position() + 1 != ids.size()) return {};
    const DraftStart start{0, ids.back()};
    return {forward_.draft({&start, 1}, std::min(most, forward_.cache().shape().pending + 1))[0]};
}

} // namespace tq
