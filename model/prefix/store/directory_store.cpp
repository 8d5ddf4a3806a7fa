// The shared store as a directory, mostly on a network file system. It has the layout of the local one (page_directory.cpp).
// Pages expire by their time of modification, which a use sets anew. A use within 10 minutes of the last is not noted, since each
// note is a write. A writer deletes expired pages once an hour.
// The directory itself is never made: if it is missing, it is probably not mounted.
#include "model/prefix/store/directory_store.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include <thread>

namespace tq {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using FileClock = fs::file_time_type::clock;

constexpr auto use_is_new = 10min;         // a use after less is not noted: it costs a write
constexpr auto time_between_expiries = 1h; // each reads the whole directory

// On Windows nobody can open a file for the moment in which another process deletes or replaces it.
constexpr auto between_tries = 2ms;
#ifdef _WIN32
constexpr int more_tries = 25;
#else
constexpr int more_tries = 0;
#endif

class DirectoryStore final : public SharedStore {
  public:
    DirectoryStore(const fs::path& directory, const OwnerTexts& owner, std::chrono::seconds ttl)
        : directory_(directory), own_(directory / owner_name(owner).hex()), owner_(owner), ttl_(ttl) {}

    std::optional<std::vector<std::byte>> get(const PageEntry& page, size_t max_bytes, Clock::time_point) override {
        for (int tries = 0; tries < more_tries; tries++) {
            try {
                return get_now(page, max_bytes);
            } catch (const Error&) {
                std::this_thread::sleep_for(between_tries);
            }
        }
        return get_now(page, max_bytes);
    }

    bool put(const PageEntry& page, std::span<const std::byte> bytes, bool replace, Clock::time_point) override {
        require_directory(); // which is not made here: perhaps it is only not mounted
        make_owner_directory(directory_, owner_);
        if (ttl_ > 0s && Clock::now() > next_expiry_) {
            next_expiry_ = Clock::now() + time_between_expiries;
            expire_pages(own_, ttl_);
            make_owner_directory(directory_, owner_); // it may have been empty, and deleted
        }
        const fs::path path = own_ / page.file_name();
        std::error_code error;
        if (!replace && fs::is_regular_file(path, error) && !is_expired(path)) {
            note_use(path);
            return false;
        }
        write_whole(path, {bytes});
        return true;
    }

    void probe(Clock::time_point) override { require_directory(); }

  private:
    std::optional<std::vector<std::byte>> get_now(const PageEntry& page, size_t max_bytes) const {
        const fs::path path = own_ / page.file_name();
        std::error_code error;
        const fs::file_status status = fs::status(path, error);
        if (status.type() == fs::file_type::not_found) return std::nullopt;
        if (error) fail("cannot read {}: {}", printable(utf8_text(path), 300), error.message());
        if (!fs::is_regular_file(status)) fail("{} is not a file", printable(utf8_text(path), 300));
        if (is_expired(path)) return std::nullopt;
        auto bytes = read_bytes(path, max_bytes + 1);
        if (!bytes) {
            if (!fs::exists(path, error)) return std::nullopt; // another process has deleted it
            fail("cannot read {}", printable(utf8_text(path), 300));
        }
        if (bytes->size() > max_bytes)
            fail("{} has more than the {} bytes of a page", printable(utf8_text(path), 300), max_bytes);
        note_use(path);
        return bytes;
    }

    void require_directory() const {
        std::error_code error;
        if (!fs::is_directory(directory_, error))
            fail("{} is not a directory that can be read: create it, or mount it", printable(utf8_text(directory_), 300));
    }
    FileClock::duration unused_for(const fs::path& path) const {
        std::error_code gone;
        const auto used = fs::last_write_time(path, gone);
        return gone ? FileClock::duration::max() : FileClock::now() - used;
    }
    bool is_expired(const fs::path& path) const { return ttl_ > 0s && unused_for(path) > ttl_; }
    void note_use(const fs::path& path) const {
        std::error_code ignored; // a directory may be there to be read only
        if (unused_for(path) > use_is_new) fs::last_write_time(path, FileClock::now(), ignored);
    }

    const fs::path directory_, own_;
    const OwnerTexts owner_;
    const std::chrono::seconds ttl_;
    Clock::time_point next_expiry_{};
};

} // namespace

std::unique_ptr<SharedStore> open_directory_store(const fs::path& directory, const OwnerTexts& owner, std::chrono::seconds ttl) {
    return std::make_unique<DirectoryStore>(directory, owner, ttl);
}

} // namespace tq
