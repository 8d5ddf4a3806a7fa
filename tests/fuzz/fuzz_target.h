// Shared by the fuzz targets: any input is either read, or throws an Error of one line. Anything else is a finding.
#pragma once
#include "base/error.h"
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <unistd.h>

namespace tq::fuzz {

// A directory of this process, in memory if the system has that: the readers need files.
inline const std::filesystem::path& directory() {
    static const std::filesystem::path path = [] {
        const std::filesystem::path place = std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp";
        std::filesystem::path own = place / ("tq_fuzz." + std::to_string(::getpid()));
        std::filesystem::create_directory(own);
        return own;
    }();
    static const bool registered = std::atexit([] { std::filesystem::remove_all(directory()); }) == 0;
    static_cast<void>(registered);
    return path;
}

inline void write(const char* name, std::string_view bytes) {
    std::ofstream(directory() / name, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}

inline std::string_view text(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

template <class Action> int run(Action action) {
    try {
        action();
    } catch (const Error& e) {
        if (std::string_view(e.what()).find('\n') != std::string_view::npos) std::abort();
    }
    return 0;
}

} // namespace tq::fuzz
