// Text of an exception for the user.
#pragma once
#include "base/path_text.h"
#include <exception>
#include <filesystem>
#include <string>

namespace tq {

// Returns the error's text; of a std::filesystem_error the path and the reason, since its own text begins with a function's name.
inline std::string error_text(const std::exception& error) {
    const auto* of_files = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
    return of_files ? "cannot use " + utf8_text(of_files->path1()) + ": " + of_files->code().message() : error.what();
}

} // namespace tq
