// BLAKE2s against the vector of RFC 7693, appendix B, and against Python's hashlib.
#include "base/blake2s.h"
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <vector>

using namespace tq;

namespace {

std::vector<std::byte> hash_of(std::span<const std::byte> bytes, size_t size) {
    std::vector<std::byte> hash(size);
    blake2s(hash, bytes);
    return hash;
}

std::string hex(std::span<const std::byte> bytes) {
    std::string text;
    for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<int>(byte));
    return text;
}

std::string hex_of(std::string_view text, size_t size) { return hex(hash_of(std::as_bytes(std::span(text)), size)); }

// `length` bytes, each greater by `step` than the one before.
std::vector<std::byte> steps(size_t length, size_t first, size_t step) {
    std::vector<std::byte> bytes(length);
    for (size_t i = 0; i < length; i++) bytes[i] = std::byte(first + i * step);
    return bytes;
}

} // namespace

TEST_CASE("BLAKE2s of texts") {
    CHECK(hex_of("abc", 32) == "508c5e8c327c14e2e1a72ba34eeb452f37458b209ed63a294d999b4c86675982");
    CHECK(hex_of("", 32) == "69217a3079908094e11121d042354a7c1f55b6482ca1a51e1b250dfd1ed0eef9");
    CHECK(hex_of("abc", 16) == "aa4938119b1dc7b87cbad0ffd200d0ae");
    CHECK(hex_of("", 16) == "64550d6ffe2c0a01a14aba1eade0200c");
}

TEST_CASE("BLAKE2s of a whole block, and of some blocks") {
    CHECK(hex(hash_of(steps(64, 0, 1), 32)) == "56f34e8b96557e90c1f24b52d0c89d51086acf1b00f634cf1dde9233b8eaaa3e");
    CHECK(hex(hash_of(steps(255, 0, 1), 32)) == "f03f5789d3336b80d002d59fdf918bdb775b00956ed5528e86aa994acb38fe2d");
}

// hashlib.blake2s(b"".join(hashlib.blake2s(bytes((i * 7 + length) & 255 for i in range(length)), digest_size=size).digest()
//                          for size in range(1, 33) for length in range(200))).hexdigest()
TEST_CASE("BLAKE2s of every size, and of every length up to three blocks and more") {
    std::vector<std::byte> all;
    for (size_t size = 1; size <= 32; size++)
        for (size_t length = 0; length < 200; length++) {
            const auto hash = hash_of(steps(length, length, 7), size);
            all.insert(all.end(), hash.begin(), hash.end());
        }
    CHECK(hex(hash_of(all, 32)) == "99c927aaf9e574b0a6ba58ce329978bd6575ccceba539e558e56d81411b28e04");
}
