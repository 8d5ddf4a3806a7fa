// --prompt-cache of commands that run prompts: saves the cache of one run for the next.
#pragma once
#include "tools/tq-run/cli/argument_parser.h"
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tq {

class Console;
class Session;
struct CacheOwner;
struct Engine;

struct PromptCacheArguments {
    std::string path; // empty: none
    bool all = false, read_only = false;

    // Throws Error if the file cannot be written, or is missing although it is read-only: before anything that takes long.
    void check() const;
};

void add_flags(ArgumentParser& command, PromptCacheArguments& arguments);

class PromptCache {
  public:
    // Loads the file, if there is one, into the session's cache, as far as the context reaches. Throws Error when it is damaged
    // or does not fit, and LoadStopped on Ctrl-C. All arguments outlive this object.
    PromptCache(const PromptCacheArguments& arguments, const Engine& engine, Session& session, Console& console);
    ~PromptCache();

    // Called after each prompt, once it is in the cache. Saves the first prompt, unless all of it was in the file, or the file
    // holds another one that is much longer, which is reported.
    void after_prompt();

    // Saves the generated tokens too, if that was requested; and of an interrupted first prompt the part that the file
    // lacks. False when the latest saving failed, which was reported.
    bool finish();

  private:
    bool writes() const { return !arguments_.path.empty() && !arguments_.read_only; }
    bool keeps_longer();
    void load();
    void save();
    void note(const std::string& text);

    const PromptCacheArguments& arguments_;
    Session& session_;
    Console& console_;
    const std::unique_ptr<const CacheOwner> owner_;
    const std::string shown_;
    std::vector<uint32_t> filed_; // ids in the file, once it was read or written
    bool prompt_came_ = false, failed_ = false, kept_ = false;
};

} // namespace tq
