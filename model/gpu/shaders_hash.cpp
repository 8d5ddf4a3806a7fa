#include "model/gpu/shaders_hash.h"
#include "base/checksum.h"
#include "shaders.gen.h"
#include <vector>

namespace tq::gpu {

uint64_t shaders_hash() {
    std::vector<uint64_t> each;
    for (const AnyShader* one : shader::all) {
        each.push_back(checksum(std::as_bytes(std::span(std::string_view(one->name)))));
        each.push_back(checksum(std::as_bytes(one->code())));
    }
    return checksum(std::as_bytes(std::span(each)));
}

} // namespace tq::gpu
