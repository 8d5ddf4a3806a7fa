// A large file that is written in parts, and gone on with by the same command if a run was stopped: until it is whole, it is
// NAME.part, and NAME.part.log says which parts it has.
#pragma once
#include "base/file_system.h"
#include "tools/check/quality/run_log.h"
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace tq {

class PartFile {
  public:
    // Whether part i, as the log has it, lies in `file`, the whole .part.
    using IsRight = std::function<bool(size_t i, const nlohmann::json& part, std::span<const std::byte> file)>;

    // header: the first bytes of the file, of `bytes` in all. what: all that decides the other bytes. A .part of another `what`
    // with the same "schema" is begun anew. An earlier run's parts are kept up to the first that is not right. Throws an Error if
    // the file exists and is not to be overwritten, cannot be written, another process writes it, the disk has too little room,
    // or a file beside it is not one of this class's.
    PartFile(std::filesystem::path path, const std::string& header, uint64_t bytes, const nlohmann::json& what, bool overwrite,
             const IsRight& is_right);

    ~PartFile(); // keeps the .part if a part of it is finished, but for discard()
    PartFile(const PartFile&) = delete;
    PartFile& operator=(const PartFile&) = delete;

    // Returns the file and the files that are written beside it. The caller must read none of them.
    static std::array<std::filesystem::path, 4> names(const std::filesystem::path& path);

    size_t finished() const { return log_->parts().size(); }       // parts, in order
    void write(uint64_t offset, std::span<const std::byte> bytes); // throws Error, of a full disk among others
    void finish(nlohmann::json part);                              // all its bytes are written

    void discard() { discarded_ = true; } // nothing is kept: the same command would fail again

    // All parts are finished: returns the .part, which can be read now. Bytes that no part has are 0.
    const std::filesystem::path& close();
    void commit(); // gives the file its name. Throws an Error, also if the name was taken meanwhile and must not be overwritten

  private:
    void refuse_existing() const;
    void refuse_foreign(const nlohmann::json& what) const;
    void take_draft(const std::string& header, uint64_t bytes);
    void open_log(const nlohmann::json& what);
    void keep_right(const nlohmann::json& what, const IsRight& is_right);
    [[noreturn]] void cannot_write() const;
    void remove_unkept();
    bool is_kept() const { return finished() > 0 && !discarded_; } // when the object ends

    // A file of its own, as Windows maps no file that a lock may write; removed with the object.
    struct Lock {
        std::filesystem::path path;
        std::unique_ptr<FileLock> held = nullptr;
        ~Lock();
    };

    std::filesystem::path path_, draft_, log_path_;
    uint64_t bytes_;
    bool overwrite_, discarded_ = false;
    Lock lock_;
    std::optional<quality::RunLog> log_;
    std::fstream file_;
};

} // namespace tq
