// One repository in the cache directory, laid out as huggingface_hub does:
//   models--USER--REPOSITORY/refs/main             the commit that the branch was at
//   models--USER--REPOSITORY/blobs/OID             the bytes of a file, OID.incomplete while they arrive
// models--USER--REPOSITORY/snapshots/COMMIT/FILE a relative link to its blob; a copy if links cannot be made
//   .locks/models--USER--REPOSITORY/OID.lock       taken while a blob is written
#pragma once
#include "model/hub/choice.h"
#include <filesystem>

namespace tq {

class HubCache {
  public:
    // The constructor neither creates nor reads files.
    HubCache(const std::filesystem::path& root, const std::string& repository);

    const std::filesystem::path& root() const { return root_; }
    const std::filesystem::path& folder() const { return folder_; }
    std::filesystem::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }
    std::filesystem::path blob(const HubFile& file) const { return folder_ / "blobs" / file.oid; }
    std::filesystem::path incomplete(const HubFile& file) const { return folder_ / "blobs" / (file.oid + ".incomplete"); }
    std::filesystem::path lock(const HubFile& file) const;

    // Returns the commit of the branch main, else of the only snapshot; empty when there is none.
    std::string commit() const;
    // Returns the files of a snapshot, sorted by name, without object ids.
    std::vector<HubFile> files(const std::string& commit) const;
    // True if the snapshot has the complete file. `file` has a safe name.
    bool has(const std::string& commit, const HubFile& file) const;
    bool has_blob(const HubFile& file) const;

    // All throw Error when the disk does not allow it.
    void make_folders() const;
    void add_to_snapshot(const std::string& commit, const HubFile& file) const; // its blob must exist
    void set_commit(const std::string& commit) const;

  private:
    std::filesystem::path root_, folder_, locks_;
};

} // namespace tq
