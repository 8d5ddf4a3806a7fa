// Files of a KV cache, which --prompt-cache writes and reads, so that a prompt is run only once. Untrusted until checked.
//
//   0    "tq-run cache v9\n"
//   16   the length of the following text, 64 bits, little-endian
//   24   JSON: the texts that identify the owner (model/prefix/owner.h), which a reader must compare
// then pages of 256 tokens (the last may have fewer), each as a file of the prefix cache (model/prefix/page_file.h)
//   then, if the cache had a full-precision window: "tq-run window 1\n", its tokens, 64 bits, the checksum of what follows
//   (base/checksum.h), and the window's bytes (CacheVectors::read_window())
//   then, if the model has recurrent layers: "tq-run states 1\n", the checksum of what follows, and the states after the last
//   token (CacheVectors::read_state())
// The pages hold the cache's own bytes, which are equal on every device: no vector is decoded.
#pragma once
#include "base/mapped_file.h"
#include "model/cache.h"
#include "model/prefix/owner.h"
#include "model/prefix/page_file.h"
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tq {

// Returns the size of the whole file.
uint64_t prompt_cache_bytes(const CacheOwner& owner, uint32_t tokens, const SavedSlot& beside = {});

// Calls write(bytes) for one piece of the file after another; `pages` is called for each page of ids.size() > 0 tokens, in order.
// beside: the window and states of their slot. cold: how many of the tokens have the bits of a cold run (model/prefix/cold.h).
// Exceptions of both functions pass through.
void write_prompt_cache(const CacheOwner& owner, std::span<const uint32_t> ids, uint32_t cold, const PageSource& pages,
                        const SavedSlot& beside, const std::function<void(std::span<const std::byte>)>& write);

// Whether such a file was saved without the model's head for multi-token prediction. Returns false if it cannot be read;
// PromptCacheFile reports that.
bool saved_without_head(const std::filesystem::path& path);

class PromptCacheFile {
  public:
    // Throws an Error that names the file and says what to do, when it is incomplete, or was saved with another model or cache.
    // If another computation (device, driver, build) saved it, none of its tokens are cold.
    PromptCacheFile(const std::filesystem::path& path, const CacheOwner& owner);

    const std::vector<uint32_t>& ids() const { return ids_; } // at least one, all within the vocabulary
    uint32_t cold() const { return cold_; }                   // how many have the bits of a cold run

    // Reads the first tokens of the page at `position`, as many as `bytes` has room for. Throws an Error if the page does not
    // match its checksum.
    void read(uint32_t position, std::span<std::byte> bytes) const;

    // Returns the window and the recurrent states of a slot of all ids(). The window has the last `window_tokens` tokens, which
    // is what the cache keeps; 0: there is none. Throws an Error if these do not match their checksums.
    SavedSlot beside(uint32_t window_tokens) const;

  private:
    // These return what follows.
    std::span<const std::byte> read_pages(std::span<const std::byte> rest, const PageName& owner, uint32_t vocab_size);
    std::span<const std::byte> read_window(std::span<const std::byte> rest);
    void read_states(std::span<const std::byte> rest, uint64_t bytes);
    void require(std::span<const std::byte> bytes, uint64_t check, const char* what) const;

    std::string shown_; // the path
    MappedFile file_;
    PageLayout layout_, window_layout_;
    uint32_t window_tokens_ = 0;
    uint64_t window_check_ = 0, states_check_ = 0;
    std::span<const std::byte> window_, states_;
    struct Page {
        PageHead head;
        std::span<const std::byte> file;
    };
    std::vector<Page> pages_;
    std::vector<uint32_t> ids_;
    uint32_t cold_ = 0;
};

} // namespace tq
