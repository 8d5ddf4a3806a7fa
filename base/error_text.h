// What an exception says to a user.
#pragma once
#include "base/path_text.h"
#include <exception>
#include <filesystem>
#include <string>

namespace tq {

// Its text; of std::filesystem, whose own begins with the name of a function, the path and what is wrong with it.
inline std::string error_text(const std::exception& error) {
    const auto* of_files = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
    return of_files ? "cannot use " + utf8_text(of_files->path1()) + ": " + of_files->code().message() : error.what();
}

} // namespace tq
