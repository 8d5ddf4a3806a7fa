// Files of a repository that was cloned without Git LFS: a few lines that stand for the content.
#pragma once
#include "base/error.h"
#include <string>
#include <string_view>

namespace tq {

// `begin`: the first bytes of the file `path`, or all of them. Throws an Error if they are a Git LFS pointer.
inline void refuse_lfs_pointer(std::string_view begin, const std::string& path) {
    if (begin.starts_with("version https://git-lfs"))
        fail(
            "{}: it is not the file itself, but Git LFS's pointer to it: run git lfs pull in its directory, or download it again",
            path);
}

} // namespace tq
