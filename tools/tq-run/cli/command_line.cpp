// Reads the words of a command line before CLI11 does, for what CLI11 cannot: short flags of several letters (-ctk would be -c
// tk), llama.cpp's other spellings, and errors that say what to do instead. Reader goes over the words once. `app_` is the
// command that was recognised so far, so a flag is looked up where it belongs. Each flag is tried as one of ours under any name,
// as one that is replaced by another (read_special), and as one of llama.cpp's that tq-run lacks (llama_flags.cpp). The last are
// left out with a note if they change no result, and refused if they would.
// The word after a flag with a value is its value, whatever it looks like, so that -p "-5" works.
// -b is the exception to word-by-word reading: in llama.cpp it is a batch of several -ub blocks. So it is dropped at the end if
// -ub was given too, in either order.
#include "tools/tq-run/cli/command_line.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "model/files/formats/json.h"
#include "tools/tq-run/cli/arguments.h"
#include "tools/tq-run/cli/llama_flags.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/ranges.h>
#include <numeric>

namespace tq {
namespace {

constexpr std::string_view decimal = "0123456789";
constexpr uint64_t max_system_prompt_bytes = 16u << 20;

// Commands of ollama and others, and what does the same here.
struct Verb {
    std::string_view word, hint;
};
constexpr Verb download{
    "", "chat, serve and all others download a model with -hf USER/REPOSITORY[:QUANT]; tq-run models lists those that are there"};
constexpr std::array verbs_elsewhere{
    Verb{"list", "tq-run models lists what -hf has downloaded"},
    Verb{"ls", "tq-run models lists what -hf has downloaded"},
    Verb{"pull", download.hint},
    Verb{"get", download.hint},
    Verb{"download", download.hint},
    Verb{
        "run",
        "tq-run chat -hf USER/REPOSITORY[:QUANT] downloads a model, once, and chats with it; tq-run generate answers one prompt"},
    Verb{"rm", "tq-run models remove USER/REPOSITORY[:QUANT] deletes what -hf has downloaded"},
    Verb{"remove", "tq-run models remove USER/REPOSITORY[:QUANT] deletes what -hf has downloaded"},
    Verb{"ps", "no model runs in the background: each tq-run serve has one, until Ctrl-C ends it, and tells about it at /props "
               "and /metrics"},
    Verb{"stop", "no model runs in the background: Ctrl-C ends tq-run serve"},
    Verb{"show", "tq-run plan -m FILE, or -hf USER/REPOSITORY, shows a model's shape and the memory that it needs"},
    Verb{"create", "a model needs no description of its own: flags of chat and serve set its system prompt and sampling"},
    Verb{"cp", "models are files: copy them, or name them with tq-run serve --alias"},
    Verb{"push", "tq-run uploads nothing"},
};

constexpr std::string_view former_mix = "tune"; // the name that mix had; scripts may use it

// Words of other programs for commands that have commands below them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> words_elsewhere{{{"rm", "remove"},
                                                                                        {"rm", "prune"},
                                                                                        {"delete", "remove"},
                                                                                        {"delete", "prune"},
                                                                                        {"remove", "prune"},
                                                                                        {"clear", "prune"},
                                                                                        {"clean", "prune"},
                                                                                        {"ls", "list"},
                                                                                        {"show", "stat"}}};

// The number of letters to insert, remove, change or swap with the next one to turn one word into the other.
// Optimal string alignment: Levenshtein's distance with swaps of neighbours. Three rows of the table are enough: this one, the
// last, and the one before for swaps.
size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> before, last(b.size() + 1), row(b.size() + 1);
    std::iota(last.begin(), last.end(), size_t(0));
    for (size_t i = 1; i <= a.size(); i++) {
        row[0] = i;
        for (size_t j = 1; j <= b.size(); j++) {
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
        }
        before = std::exchange(last, row);
    }
    return last[b.size()];
}

// Returns a known word that begins with `word`, else the most similar one; empty if none is similar.
// A third of the letters may differ, and one at least. A beginning of more than three characters counts as a distance of 0, so
// that --temperat means --temperature.
std::string nearest(std::string_view word, const std::vector<std::string>& known) {
    std::string best;
    size_t min = std::max<size_t>(1, word.size() / 3) + 1;
    for (const std::string& name : known) {
        const bool begins = word.size() > 3 && name.starts_with(word);
        const size_t distance = begins ? 0 : edit_distance(word, name);
        if (distance < min) best = name, min = distance;
    }
    return best;
}

std::string name_of(const CLI::App& app) {
    return app.get_parent() ? name_of(*app.get_parent()) + ' ' + app.get_name() : "tq-run";
}

std::vector<std::string> command_names(const CLI::App& app) {
    std::vector<std::string> names;
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
        names.push_back(command->get_name());
    return names;
}

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
    for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
        if (command->get_name() == name) return command;
    return nullptr;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_min() > 0; }

class Reader {
  public:
    Reader(const CLI::App& app, const std::vector<std::string>& words) : app_(&app), words_(words) {}

    CommandLine read();

  private:
    bool at_end() const { return at_ >= words_.size(); }
    void read_command(const std::string& given);
    void read_flag(const std::string& word);
    std::string our_name(const std::string& name) const; // of a flag that has several
    void refuse_empty(const std::string& name, const std::optional<std::string>& value) const;
    bool read_ours(const std::string& name, const std::optional<std::string>& value);
    bool read_special(const std::string& name, const std::optional<std::string>& value);
    bool read_llamas(const std::string& name, const std::optional<std::string>& value);
    std::string take(const std::string& name, const std::optional<std::string>& value);
    void drop_logical_batch();
    bool takes_all_words() const;
    void pass_rest();
    void push(std::string flag) { line_.arguments.push_back(std::move(flag)); }
    const CLI::Option* option(std::string_view name) const { return app_->get_option_no_throw(std::string(name)); }
    std::vector<std::string> flag_names() const;
    [[noreturn]] void refuse(const std::string& what) const;
    [[noreturn]] void refuse_unknown(const std::string& name) const;

    const CLI::App* app_; // the command recognised so far
    const std::vector<std::string>& words_;
    size_t at_ = 0;
    CommandLine line_;
    std::vector<size_t> logical_batches_; // indices of -b in line_.arguments
    bool has_block_ = false;              // -ub
};

CommandLine Reader::read() {
    if (!words_.empty() && (words_[0] == "-v" || words_[0] == "version")) return {{"--version"}, {}};
    if (!words_.empty() && words_[0] == "help") at_ = 1;
    while (!at_end()) {
        if (takes_all_words()) {
            pass_rest();
            break;
        }
        const std::string& word = words_[at_++];
        if (word == "--") { // the remaining words are not flags
            pass_rest();
            break;
        }
        if (word.size() > 1 && word.starts_with('-'))
            read_flag(word);
        else
            read_command(word);
    }
    if (!words_.empty() && words_[0] == "help") push("--help");
    drop_logical_batch();
    return line_;
}

// A command with the value `words` has no flags of its own: its words are for other programs.
bool Reader::takes_all_words() const { return option("words") && words_[at_] != "-h" && words_[at_] != "--help"; }

void Reader::pass_rest() {
    push("--");
    line_.arguments.insert(line_.arguments.end(), words_.begin() + std::ptrdiff_t(at_), words_.end());
}

// llama.cpp's -b is a batch of several -ub blocks, and our batch is such a block.
void Reader::drop_logical_batch() {
    if (!has_block_) return;
    auto& all = line_.arguments;
    for (size_t i = logical_batches_.size(); i-- > 0;) {
        const auto at = all.begin() + std::ptrdiff_t(logical_batches_[i]);
        line_.without_effect.push_back(fmt::format("-b {} (-ub is used)", printable(at[1], 40)));
        all.erase(at, at + 2);
    }
}

void Reader::read_command(const std::string& given) {
    const CLI::App* const app_before = app_;
    const std::string word = !app_->get_parent() && given == former_mix ? "mix" : given;
    push(word);
    const auto names = command_names(*app_);
    if (names.empty()) return; // CLI11 reports a word that is neither a command nor a value
    app_ = find_command(*app_, word);
    if (app_) return;
    const std::string best = nearest(word, names);
    for (const Verb& verb : verbs_elsewhere)
        if (!app_before->get_parent() && verb.word == word)
            throw UsageError(fmt::format("there is no command {}: {}", word, verb.hint));
    for (const auto& [theirs, ours] : words_elsewhere)
        if (const CLI::App* meant = theirs == word ? find_command(*app_before, std::string(ours)) : nullptr)
            throw UsageError(fmt::format("there is no command {} {}: {} does that", name_of(*app_before), word, name_of(*meant)));
    throw UsageError(fmt::format("unknown command {}{} (tq-run --help lists them)", printable(word),
                                 best.empty() ? "" : fmt::format(": did you mean {}?", best)));
}

void Reader::read_flag(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const auto value = equals == std::string::npos ? std::nullopt : std::optional(word.substr(equals + 1));
    refuse_empty(name, value);
    if (!read_special(name, value) && !read_ours(name, value) && !read_llamas(name, value)) refuse_unknown(name);
}

std::string Reader::our_name(const std::string& name) const {
    for (const OtherName& other : other_names())
        if (other.name == name && option(other.flag)) return std::string(other.flag);
    return name;
}

// Most code takes an empty text for a flag that was not given, so an empty value is an error, unless it has a meaning.
void Reader::refuse_empty(const std::string& name, const std::optional<std::string>& value) const {
    const CLI::Option* known = option(our_name(name));
    const bool is_empty = value ? value->empty() : !at_end() && words_[at_].empty();
    if (known && known->get_items_expected_max() > 0 && is_empty && !may_be_empty(*known))
        refuse(fmt::format("{}: it is empty: give it a value, or leave it out", known->get_name()));
}

// Returns the value after =, or the next word, whatever it looks like.
std::string Reader::take(const std::string& name, const std::optional<std::string>& value) {
    if (value) return *value;
    if (at_end()) refuse(name + " needs a value");
    return words_[at_++];
}

// A value goes to CLI11 as a word of its own behind the flag. It is not checked here: CLI11's error names the flag and what it
// takes.
bool Reader::read_ours(const std::string& name, const std::optional<std::string>& value) {
    const std::string flag = our_name(name);
    const CLI::Option* known = option(flag);
    if (!known) return false;
    if (!takes_value(*known)) {
        push(value ? flag + '=' + *value : flag);
        return true;
    }
    has_block_ |= name == "-ub" || name == "--ubatch-size";
    if ((name == "-b" || name == "--batch-size") && (value || !at_end())) logical_batches_.push_back(line_.arguments.size());
    push(flag);
    if (flag == "--color" && !value && (at_end() || (words_[at_] != "on" && words_[at_] != "off" && words_[at_] != "auto")))
        push("on"); // as in older versions of llama.cpp
    else if (value || !at_end())
        push(take(name, value)); // CLI11 reports a missing one
    return true;
}

// Reads the flags that are replaced by others.
bool Reader::read_special(const std::string& name, const std::optional<std::string>& value) {
    if (name == "--list-devices" && !option(name)) {
        line_.arguments = {"devices"};
        at_ = words_.size();
    } else if (name == "--usage") {
        push("--help");
    } else if ((name == "-sysf" || name == "--system-prompt-file") && !option("--system-prompt-file") &&
               option("--system-prompt")) {
        const std::string text = read_text_file(utf8_path(take(name, value)), max_system_prompt_bytes);
        push("--system-prompt");
        push(text);
    } else if ((name == "--context-shift" || name == "--no-context-shift") && option("--context-shift")) {
        const bool said = value || (!at_end() && (words_[at_] == "on" || words_[at_] == "off"));
        push("--context-shift");
        push(name == "--no-context-shift" ? "off" : said ? take(name, value) : "on");
    } else if ((name == "-rea" || name == "--reasoning") && option("--think") && !at_end() && words_[at_] != "auto") {
        const std::string how = take(name, value);
        if (how != "on" && how != "off") refuse(fmt::format("{} must be on, off or auto, not {}", name, printable(how)));
        push(how == "on" ? "--think" : "--no-think");
    } else if (name == "--reasoning-effort" && option(name) && (value || !at_end()) &&
               (value ? *value : words_[at_]) == "default") {
        take(name, value);
    } else if (name == "--reasoning-budget" && option("--think") && !at_end() && words_[at_] == "0") {
        ++at_;
        push("--no-think");
    } else {
        return false;
    }
    return true;
}

// A flag whose value may be left out is the hard case: the next word belongs to it only if it can be nothing else (a number,
// on, off, auto). A neutral value (--mirostat 0) asks for what happens anyway, so it is let through even for a flag that would
// be refused.
bool Reader::read_llamas(const std::string& name, const std::optional<std::string>& value) {
    const LlamaFlag* flag = app_->get_parent() ? find_llama_flag(name) : nullptr;
    if (!flag) return false;
    std::optional<std::string> given = value;
    if (flag->value == FlagValue::one) given = take(name, value);
    if (flag->value == FlagValue::perhaps && !value && !at_end()) {
        const std::string& next = words_[at_];
        const bool is_number = !next.empty() && next.find_first_not_of("0123456789,") == std::string::npos;
        if (is_number || next == "on" || next == "off" || next == "auto") given = words_[at_++];
    }
    const auto is_neutral = [&](const std::string& text) {
        const auto number = flag_number(text);
        return text == flag->neutral || (number && number == flag_number(std::string(flag->neutral)));
    };
    const bool harmless = flag->refusal.empty() || (given && !flag->neutral.empty() && is_neutral(*given));
    if (!harmless) refuse(fmt::format("{} is not supported: {}", name, flag->refusal));
    line_.without_effect.push_back(given ? fmt::format("{} {}", name, printable(*given, 40)) : name);
    return true;
}

std::vector<std::string> Reader::flag_names() const {
    std::vector<std::string> names;
    for (const CLI::Option* known : app_->get_options()) {
        if (known->get_group().empty()) continue; // hidden
        for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
        for (const std::string& name : known->get_snames()) names.push_back("-" + name);
    }
    for (const OtherName& other : other_names())
        if (option(other.flag)) names.emplace_back(other.name);
    return names;
}

void Reader::refuse(const std::string& what) const { throw UsageError(fmt::format("{} (see {} --help)", what, name_of(*app_))); }

// A flag before any command is most likely meant for chat. A short flag with digits behind it (-t4) is written apart in the
// advice.
void Reader::refuse_unknown(const std::string& name) const {
    if (!app_->get_parent())
        throw UsageError(fmt::format("unknown flag {}: a command comes first, such as tq-run chat {} (tq-run --help lists them)",
                                     printable(name), printable(name)));
    std::string best = nearest(name, flag_names());
    const bool glued = name.size() > 2 && name[1] != '-' && name.find_first_not_of(decimal, 2) == std::string::npos;
    if (glued && option(name.substr(0, 2))) best = fmt::format("{} {}", name.substr(0, 2), name.substr(2));
    refuse(fmt::format("unknown flag {}{}", printable(name), best.empty() ? "" : fmt::format(": did you mean {}?", best)));
}

} // namespace

CommandLine read_command_line(const CLI::App& app, const std::vector<std::string>& words) { return Reader(app, words).read(); }

std::string describe_without_effect(const CommandLine& line) {
    if (line.without_effect.empty()) return "";
    return fmt::format("tq-run: ignored, as without effect here: {}\n", fmt::join(line.without_effect, ", "));
}

} // namespace tq
