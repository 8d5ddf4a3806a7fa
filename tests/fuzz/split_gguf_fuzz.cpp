// The parts of a split GGUF file: a byte, the part that is opened, then the parts, each after its length in four bytes.
#include "model/files/formats/gguf.h"
#include "tests/fuzz/fuzz_target.h"
#include <cstring>
#include <fmt/format.h>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    std::string_view rest = tq::fuzz::text(data + 1, size - 1);
    std::vector<std::string_view> parts;
    while (rest.size() >= 4 && parts.size() < 4) {
        uint32_t bytes;
        std::memcpy(&bytes, rest.data(), 4);
        parts.push_back(rest.substr(4, bytes));
        rest.remove_prefix(std::min(rest.size(), 4 + size_t(bytes)));
    }
    if (parts.empty()) return 0;
    const auto name = [&](size_t i) { return fmt::format("m-{:05}-of-{:05}.gguf", i + 1, parts.size()); };
    for (size_t i = 0; i < parts.size(); i++) tq::fuzz::write(name(i).c_str(), parts[i]);
    const int status = tq::fuzz::run([&] {
        const tq::ModelFile file = tq::read_gguf(tq::fuzz::directory() / name(data[0] % parts.size()));
        uint32_t sum = 0;
        for (const tq::FileTensor& tensor : file.tensors())
            for (const std::byte byte : tensor.data) sum += uint32_t(byte);
        [[maybe_unused]] volatile uint32_t seen = sum; // every byte is within the file
    });
    for (size_t i = 0; i < parts.size(); i++) std::filesystem::remove(tq::fuzz::directory() / name(i));
    return status;
}
