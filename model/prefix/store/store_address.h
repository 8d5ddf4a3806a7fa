// Address of a shared store: a directory, or redis://[[USER]:PASSWORD@]HOST[:PORT][/DB].
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tq {

struct RedisAddress {
    std::string host;
    uint16_t port = 6379;
    std::string user, password; // empty: none
    uint32_t database = 0;
};
struct StoreAddress {
    std::optional<RedisAddress> redis;
    std::filesystem::path directory; // if it is no Redis

    std::string text() const; // for people: without the password
};

// Throws Error if the address has another form, or another scheme.
StoreAddress parse_store_address(const std::string& text);

} // namespace tq
