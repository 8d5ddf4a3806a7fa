// --prompt-cache, as llama.cpp has it: a file with the cache of one prompt. It is read before the first prompt, which uses what
// the two share, and written after it, or at the end with the generated tokens (--prompt-cache-all). It is not written if it
// holds this already, nor if it holds much more (keeps_longer): a short prompt by mistake must not destroy what took long to
// compute. With recurrent layers there are states after all of its tokens alone, so a file that is longer than the context is of
// no use.
// A failure to write ends in exit status 1 but not in an error, since the answer is there.
#include "tools/tq-run/talk/prompt_cache.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/cache.h"
#include "model/engine/session.h"
#include "model/files/formats/json.h"
#include "model/files/prompt_cache.h"
#include "model/forward.h"
#include "model/load.h"
#include "model/model.h"
#include "model/prefix/owner.h"
#include "model/saved_slot.h"
#include "tools/tq-run/build.h"
#include "tools/tq-run/cli/byte_files.h"
#include "tools/tq-run/cli/progress.h"
#include "tools/tq-run/engine/engine.h"
#include <algorithm>

namespace tq {
namespace {

constexpr size_t much_longer = 64; // tokens

// False for an empty file, as mktemp makes them.
bool holds_something(const std::filesystem::path& path) {
    std::error_code error;
    return is_there(path) && !(std::filesystem::is_regular_file(path, error) && std::filesystem::file_size(path, error) == 0);
}

CacheOwner owner_of(const PromptCacheArguments& arguments, const Engine& engine, Console& console) {
    if (arguments.path.empty()) return {};
    const Model& model = engine.model;
    return {model.config, engine.forward->kv(), fingerprint(model, console), model.name,
            build_description() + ", " + engine.forward->computation()};
}

bool begins_with(const std::vector<uint32_t>& ids, const std::vector<uint32_t>& first) {
    return std::ranges::mismatch(first, ids).in1 == first.end();
}

} // namespace

void PromptCacheArguments::check() const {
    if (path.empty()) return;
    std::error_code error;
    const auto status = std::filesystem::status(utf8_path(path), error);
    if (exists(status) && !is_regular_file(status) && !is_directory(status))
        fail("{} is not a regular file, so --prompt-cache could not read it back: name another", printable(path));
    if (!read_only) {
        ByteOutput(path, ByteInput("-")); // throws if it cannot be opened; removes dead drafts
        return;
    }
    remove_dead_drafts(std::filesystem::weakly_canonical(utf8_path(path), error));
    if (!holds_something(utf8_path(path)))
        fail("{} does not exist, and --prompt-cache-ro only reads: save it first, without that flag", printable(path));
}

void add_flags(ArgumentParser& command, PromptCacheArguments& a) {
    ArgumentParser group = command.group("KV cache");
    const auto is_file = [](std::string& text) {
        return text.empty() || text == "-" ? std::string("it must be a file, not a standard stream") : std::string();
    };
    auto path =
        add_option(group, "--prompt-cache", a.path, "FILE",
                   "save the KV cache of the prompt to this file, and reuse it for the beginning that a later prompt shares")
            .check(is_file);
    auto all = add_flag(group, "--prompt-cache-all", a.all, "save the cache of the generated tokens as well").needs(path);
    add_flag(group, "--prompt-cache-ro", a.read_only, "use the file without writing it").needs(path).excludes(all);
}

PromptCache::PromptCache(const PromptCacheArguments& arguments, const Engine& engine, Session& session, Console& console)
    : arguments_(arguments), session_(session), console_(console),
      owner_(std::make_unique<CacheOwner>(owner_of(arguments, engine, console))), shown_(printable(arguments.path, 200)) {
    if (!arguments.path.empty() && holds_something(utf8_path(arguments.path))) load();
}

PromptCache::~PromptCache() = default;

// Restores as many of the file's tokens as the context holds. The window and the states are restored only if all tokens are.
void PromptCache::load() {
    const PromptCacheFile file(utf8_path(arguments_.path), *owner_);
    filed_ = file.ids();
    const Cache::Shape& shape = session_.forward().cache().shape();
    const auto tokens = uint32_t(std::min<size_t>(filed_.size(), shape.context_size));
    if (tokens < filed_.size() && shape.recurrent) return; // there are states after all of them alone
    const uint64_t total = prompt_cache_bytes(*owner_, tokens);
    TransferStatus status(console_);
    session_.restore(
        {filed_.begin(), filed_.begin() + tokens}, std::min(file.cold(), tokens),
        [&](uint32_t position, std::span<std::byte> bytes) {
            if (interrupted()) throw LoadStopped();
            file.read(position, bytes);
            const uint64_t done = total * std::min(position + page_tokens, tokens) / tokens;
            status.update("loading " + shown_, done, total, done);
        },
        tokens == filed_.size() ? file.beside(shape.window_tokens) : SavedSlot());
}

void PromptCache::note(const std::string& text) {
    console_.clear_status();
    write_error(console_.dim(fmt::format("[ {}: {} ]", shown_, text)) + "\n");
}

// Written beside the file and renamed (ByteOutput), so an interruption leaves the old one. A failure is noted and remembered for
// the exit status; the answer goes on.
void PromptCache::save() {
    const std::vector<uint32_t>& ids = session_.cached_ids();
    SavedSlot beside;
    uint64_t total = 0;
    try {
        beside = session_.save_slot();
        total = prompt_cache_bytes(*owner_, uint32_t(ids.size()), beside);
        ByteOutput file(arguments_.path, ByteInput("-"));
        TransferStatus status(console_);
        uint64_t done = 0;
        write_prompt_cache(
            *owner_, ids, session_.cold_tokens(),
            [&](uint32_t position, std::span<std::byte> bytes) { session_.read_page(position, bytes); }, beside,
            [&](std::span<const std::byte> bytes) {
                if (interrupted()) throw LoadStopped();
                file.write({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
                done += bytes.size();
                status.update("saving " + shown_, done, total, done);
            });
        file.commit();
        filed_ = ids;
        failed_ = false; // this one saved what an earlier one did not
    } catch (const LoadStopped&) {
        failed_ = true;
        return note("interrupted, not saved");
    } catch (const Error& error) {
        failed_ = true;
        return note(fmt::format("not saved: {}", error.what()));
    }
    note(fmt::format("{} tokens saved, {:.1f} MiB", ids.size(), double(total) / (1 << 20)));
}

void PromptCache::after_prompt() {
    if (arguments_.path.empty() || std::exchange(prompt_came_, true)) return;
    const Timings& timings = session_.timings();
    if (!filed_.empty())
        note(fmt::format("{} of {} tokens of the prompt were reused", timings.reused_tokens,
                         timings.reused_tokens + timings.prompt_tokens));
    if (writes() && !begins_with(filed_, session_.cached_ids()) && !keeps_longer()) save();
}

// Whether the file holds much more, and is therefore not replaced.
bool PromptCache::keeps_longer() {
    const std::vector<uint32_t>& ids = session_.cached_ids();
    if (filed_.size() < ids.size() + much_longer) return false;
    const auto common = size_t(std::ranges::mismatch(filed_, ids).in1 - filed_.begin());
    if (!std::exchange(kept_, true))
        note(fmt::format(
            "the file is unchanged, as {} of its {} tokens would be lost for these {}: delete it first, or name another",
            filed_.size() - common, filed_.size(), ids.size()));
    return true;
}

// At the end the file is written for the generated tokens if --prompt-cache-all asks for them. If no prompt came at all, for
// instance since the first one failed, it is written only if the cache has more than the file and begins with it.
bool PromptCache::finish() {
    const std::vector<uint32_t>& ids = session_.cached_ids();
    if (writes() && !begins_with(filed_, ids) && (prompt_came_ ? arguments_.all : begins_with(ids, filed_)) && !keeps_longer()) {
        clear_interrupt();
        save();
    }
    return !failed_;
}

} // namespace tq
