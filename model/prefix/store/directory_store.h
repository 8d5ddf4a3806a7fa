// Pages in a directory that several machines see, NFS or any other: files that are written under another name and renamed, and
// no locks. A file's time of modification is that of its last use, to some minutes.
#pragma once
#include "model/prefix/shared_store.h"
#include <memory>

namespace tq {

// A hanging system call on a directory cannot be given up: deadlines are left to the caller. ttl: pages that were not used for
// this time count as missing, and are deleted; 0: they stay.
std::unique_ptr<SharedStore> open_directory_store(const std::filesystem::path& directory, const OwnerTexts& owner,
                                                  std::chrono::seconds ttl);

} // namespace tq
