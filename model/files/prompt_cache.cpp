// --prompt-cache: the pages of one prompt in one file (prompt_cache.h has the layout). The file comes from the user's disk and
// may be of another model, another version, or damaged. Three kinds of checks keep wrong bytes out of the cache:
// - The owner's texts must equal those of this run. They are compared one by one, so that the message says which flag differs.
// - Each page names its owner, its parent and its tokens, and its name is a hash of these. So a page that is out of order, or
//   from another file, is found without its content being read.
// - Each page's content has a checksum, which is compared when the page is read. The file is mapped, and what is not needed is
//   never read.
// The computation of the pages may differ from this run (device, version): the pages are valid then, but their bits are not those
// of a cold run here, and cold_ is 0.
#include "model/files/prompt_cache.h"
#include "base/checksum.h"
#include "base/ensure.h"
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/json.h"
#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

namespace tq {
namespace {

constexpr std::string_view prompt_cache_magic = "tq-run cache v9\n";
constexpr std::string_view window_magic = "tq-run window 1\n", states_magic = "tq-run states 1\n";
constexpr size_t owner_at = 24, max_owner_bytes = 1 << 20;
constexpr const char* another_file = "name another file with --prompt-cache, or delete this one to have it made again";

bool starts_with(std::span<const std::byte> bytes, std::string_view text) {
    return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

std::string owner_json(const OwnerTexts& texts) { return nlohmann::json(texts).dump(); }

// Types are texts "k/v", one for each layer. A type that existed in an earlier version gets a message of its own.
void check_types(const std::string& shown, const std::string& theirs, const std::string& ours) {
    std::istringstream saved(theirs), here(ours);
    std::string a, b;
    for (uint32_t layer = 0; here >> b; layer++) {
        if (!(saved >> a)) a = "nothing";
        if (a == b) continue;
        const size_t slash = std::min(a.find('/'), a.size());
        if (find_former_type(a.substr(0, slash)) || find_former_type(a.substr(std::min(slash + 1, a.size()))))
            fail("{}: it was saved with layer {} in {}, which is no longer a cache type: {}", shown, layer, printable(a),
                 another_file);
        fail("{}: it was saved with layer {} in {}, but this cache stores it in {}: give the cache types that it was saved "
             "with (--kv, -ctk, -ctv, --kv-layers), or {}",
             shown, layer, printable(a), b, another_file);
    }
}

// Throws Error with the difference.
void check_owner(const std::string& shown, OwnerTexts saved, OwnerTexts here) {
    const auto compare = [&](const char* key, const char* what, const char* flags) {
        if (saved[key] != here[key])
            fail("{}: it was saved with {} {}, but this run has {}: give the same {}, or {}", shown, what, printable(saved[key]),
                 here[key], flags, another_file);
    };
    compare("rope", "positions", "--rope flags");
    if (saved["fingerprint"] != here["fingerprint"])
        fail("{}: it was saved with another model, or with other --weights: \"{}\", fingerprint {}, but this model has {}: {}",
             shown, printable(saved["model"]), printable(saved["fingerprint"]), here["fingerprint"], another_file);
    check_types(shown, saved["types"], here["types"]);
    compare("rotation", "the rotation", "--kv-rotation");
    compare("scale_rule", "the scale rule", "--kv-scale");
    compare("conditioning", "the channel scaling", "--kv-condition");
    if (saved["shape"] + with_head == here["shape"])
        fail("{}: it was saved without the model's head for multi-token prediction: give --spec none, or {}", shown,
             another_file);
    if (saved["shape"] == here["shape"] + with_head)
        fail("{}: it was saved with the model's head for multi-token prediction: give --spec mtp, or {}", shown, another_file);
    compare("shape", "a cache of the shape", "model");
}

// Earlier versions were safetensors, whose header begins behind a length of eight bytes. They are distinguished from foreign
// files, since the advice differs in its first half.
OwnerTexts read_owner(const std::string& shown, std::span<const std::byte> file, size_t& end) {
    const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
    if (!text.starts_with(prompt_cache_magic)) {
        if (text.substr(0, 64).find("{\"__metadata__\"") == 8 || text.starts_with("tq-run cache v"))
            fail("{}: another version of tq-run saved it, in a format that this one does not read: {}", shown, another_file);
        fail("{}: it is not a file of --prompt-cache: {}", shown, another_file);
    }
    uint64_t length = 0;
    if (text.size() >= owner_at) std::memcpy(&length, text.data() + prompt_cache_magic.size(), sizeof length);
    if (text.size() < owner_at || length > std::min(max_owner_bytes, text.size() - owner_at))
        fail("{}: {} bytes, too few for its header: the file is damaged; {}", shown, text.size(), another_file);
    end = owner_at + length;
    nlohmann::json json;
    try {
        json = read_json(text.substr(owner_at, length), shown, 2);
    } catch (const Error&) {
        fail("{}: its header is not JSON: the file is damaged; {}", shown, another_file);
    }
    OwnerTexts texts;
    if (!json.is_object()) fail("{}: its header is {}: the file is damaged; {}", shown, kind_of(json), another_file);
    for (const auto& [key, value] : json.items()) {
        if (!value.is_string())
            fail("{}: its entry {} is {}: the file is damaged; {}", shown, printable(key), kind_of(value), another_file);
        texts[key] = value.get<std::string>();
    }
    return texts;
}

} // namespace

uint64_t prompt_cache_bytes(const CacheOwner& owner, uint32_t tokens, const SavedSlot& beside) {
    uint64_t bytes = owner_at + owner_json(owner_texts(owner)).size();
    if (beside.window_tokens > 0) bytes += window_magic.size() + 16 + beside.window.size();
    if (!beside.state.empty()) bytes += states_magic.size() + 8 + beside.state.size();
    const PageLayout layout = page_layout(owner.config, owner.kv);
    for (uint32_t at = 0, count; at < tokens; at += count) {
        count = std::min(page_tokens, tokens - at);
        bytes += page_head_size(count) + layout.bytes(count);
    }
    return bytes;
}

void write_prompt_cache(const CacheOwner& owner, std::span<const uint32_t> ids, uint32_t cold, const PageSource& pages,
                        const SavedSlot& beside, const std::function<void(std::span<const std::byte>)>& write) {
    ENSURE(!ids.empty() && cold <= ids.size(), "{} of {} tokens", cold, ids.size());
    const OwnerTexts texts = owner_texts(owner);
    const std::string json = owner_json(texts);
    const uint64_t length = json.size();
    for (const auto& part :
         {std::as_bytes(std::span(prompt_cache_magic)), std::as_bytes(std::span(&length, 1)), std::as_bytes(std::span(json))})
        write(part);
    const PageLayout layout = page_layout(owner.config, owner.kv);
    const PageName name = owner_name(texts);
    PageName parent = name;
    std::vector<std::byte> content;
    for (uint32_t at = 0; at < ids.size(); at += page_tokens) {
        const uint32_t count = std::min(page_tokens, uint32_t(ids.size()) - at);
        content.resize(layout.bytes(count));
        pages(at, content);
        const PageHead head = make_page_head(name, parent, ids.subspan(at, count), cold > at ? std::min(cold - at, count) : 0);
        write(page_head_bytes(head, content));
        write(content);
        parent = head.name;
    }
    if (beside.window_tokens != 0) {
        const std::array<uint64_t, 2> tokens_and_check{beside.window_tokens, checksum(beside.window)};
        write(std::as_bytes(std::span(window_magic)));
        write(std::as_bytes(std::span(tokens_and_check)));
        write(beside.window);
    }
    if (beside.state.empty()) return;
    const uint64_t check = checksum(beside.state);
    write(std::as_bytes(std::span(states_magic)));
    write(std::as_bytes(std::span(&check, 1)));
    write(beside.state);
}

bool saved_without_head(const std::filesystem::path& path) try {
    const MappedFile file(path);
    size_t ignored;
    return !read_owner(utf8_text(path), file.bytes(), ignored)["shape"].ends_with(with_head);
} catch (const Error&) {
    return false;
}

PromptCacheFile::PromptCacheFile(const std::filesystem::path& path, const CacheOwner& owner)
    : shown_(printable(utf8_text(path), 200)), file_(path), layout_(page_layout(owner.config, owner.kv)),
      window_layout_(window_layout(layout_)) {
    size_t end = 0;
    const OwnerTexts saved = read_owner(shown_, file_.bytes(), end), here = owner_texts(owner);
    check_owner(shown_, saved, here);
    std::span<const std::byte> rest = read_pages(file_.bytes().subspan(end), owner_name(saved), owner.config.vocab_size);
    if (starts_with(rest, window_magic)) rest = read_window(rest.subspan(window_magic.size()));
    read_states(rest, owner.config.state_bytes());
    check_mapped_files();
    const auto computed = saved.find("computation"); // a file need not say it
    if (computed == saved.end() || computed->second != here.at("computation")) cold_ = 0;
}

// The names form a chain from the owner's on, so that a page cannot be left out, doubled or exchanged. Only the last page may be
// partly filled. cold_ grows while pages are cold from their beginnings on, without a gap.
std::span<const std::byte> PromptCacheFile::read_pages(std::span<const std::byte> rest, const PageName& owner,
                                                       uint32_t vocab_size) {
    PageName parent = owner;
    while (!rest.empty() && !starts_with(rest, window_magic) && !starts_with(rest, states_magic)) try {
            if (ids_.size() % page_tokens != 0) fail("bytes follow its last page");
            PageHead head = read_page_head(rest);
            const uint64_t size = page_head_size(head.tokens()) + layout_.bytes(head.tokens());
            if (rest.size() < size) fail("{} bytes of {} of a page", rest.size(), size);
            if (head.kind != RecordKind::page || head.owner != owner || head.parent != parent)
                fail("a page does not follow the one before");
            if (cold_ == ids_.size()) cold_ += head.cold;
            ids_.insert(ids_.end(), head.ids.begin(), head.ids.end());
            parent = head.name;
            pages_.push_back({std::move(head), rest.first(size)});
            rest = rest.subspan(size);
        } catch (const Error& error) {
            fail("{}: at token {}: {}: the file is damaged; {}", shown_, ids_.size(), error.what(), another_file);
        }
    if (ids_.empty()) fail("{}: it has no tokens: the file is damaged; {}", shown_, another_file);
    if (const auto bad = std::ranges::find_if(ids_, [&](uint32_t id) { return id >= vocab_size; }); bad != ids_.end())
        fail("{}: token {} of a vocabulary of {}: the file is damaged; {}", shown_, *bad, vocab_size, another_file);
    return rest;
}

std::span<const std::byte> PromptCacheFile::read_window(std::span<const std::byte> rest) {
    std::array<uint64_t, 2> tokens_and_check{};
    if (rest.size() >= sizeof tokens_and_check) std::memcpy(tokens_and_check.data(), rest.data(), sizeof tokens_and_check);
    const auto [tokens, check] = tokens_and_check;
    if (tokens == 0 || tokens > std::min<uint64_t>(kept_window_tokens(max_window_tokens), ids_.size()) ||
        rest.size() < sizeof tokens_and_check + window_layout_.bytes(uint32_t(tokens)))
        fail("{}: {} bytes of a window of {} tokens: the file is damaged; {}", shown_, rest.size(), tokens, another_file);
    window_tokens_ = uint32_t(tokens);
    window_check_ = check;
    window_ = rest.subspan(sizeof tokens_and_check, window_layout_.bytes(window_tokens_));
    return rest.subspan(sizeof tokens_and_check + window_.size());
}

void PromptCacheFile::read_states(std::span<const std::byte> rest, uint64_t bytes) {
    if (rest.empty() && bytes == 0) return;
    const size_t before = states_magic.size() + sizeof states_check_;
    if (!starts_with(rest, states_magic) || bytes == 0 || rest.size() != before + bytes)
        fail("{}: {} bytes of the recurrent states' {}: the file is damaged; {}", shown_, rest.size(), bytes, another_file);
    std::memcpy(&states_check_, rest.data() + states_magic.size(), sizeof states_check_);
    states_ = rest.subspan(before);
}

void PromptCacheFile::require(std::span<const std::byte> bytes, uint64_t check, const char* what) const {
    const bool whole = checksum(bytes) == check;
    check_mapped_files();
    if (!whole) fail("{}: its {} a wrong checksum: the file is damaged; {}", shown_, what, another_file);
}

// A window may be longer than those that this cache keeps: it then has the last tokens of it.
SavedSlot PromptCacheFile::beside(uint32_t window_tokens) const {
    SavedSlot out{uint32_t(ids_.size())};
    if (window_tokens != 0 && window_tokens_ != 0) {
        require(window_, window_check_, "window has");
        out.window_tokens = std::min(window_tokens_, kept_window_tokens(window_tokens));
        out.window.resize(window_layout_.bytes(out.window_tokens));
        copy_last_tokens(window_layout_, out.window, out.window_tokens, window_, window_tokens_);
    }
    if (states_.empty()) return out;
    require(states_, states_check_, "recurrent states have");
    out.state.assign(states_.begin(), states_.end());
    return out;
}

void PromptCacheFile::read(uint32_t position, std::span<std::byte> bytes) const {
    ENSURE(position % page_tokens == 0 && position / page_tokens < pages_.size(), "{} of {}", position, ids_.size());
    const auto& [head, file] = pages_[position / page_tokens];
    const uint32_t tokens = head.tokens(), requested = layout_.tokens(bytes.size());
    ENSURE(requested <= tokens && bytes.size() == layout_.bytes(requested), "{} bytes of {} tokens", bytes.size(), tokens);
    std::span<const std::byte> content;
    try {
        content = page_content(file, head, layout_.bytes(tokens));
        check_mapped_files();
    } catch (const Error& error) {
        fail("{}: at token {}: {}: the file is damaged; {}", shown_, position, error.what(), another_file);
    }
    copy_first_tokens(layout_, bytes, requested, content, tokens);
}

} // namespace tq
