// The lines of a chat that begin with a slash. A word of letters after the slash is a command, known or not, so that a typing
// error is not sent to the model; /usr/bin is text, and so is any line that begins with a space. What is loaded or set is made
// complete, and checked, before it replaces the old.
// A conversation at a terminal has a name made of the time until /save gives it another; it is kept after each answer
// and /undo (chat_resume.cpp).
#include "base/error.h"
#include "base/path_text.h"
#include "base/printable.h"
#include "base/terminal.h"
#include "model/files/formats/json.h"
#include "model/forward.h"
#include "model/text/unicode.h"
#include "tools/tq-run/talk/chat_session.h"
#include "tools/tq-run/talk/kept_conversation.h"
#include <algorithm>
#include <array>
#include <iterator>

namespace tq {
namespace {

constexpr uint64_t max_read_bytes = 16u << 20;

enum class Takes { nothing, something, anything };

struct Command {
    std::string_view word, argument, help;
    Takes takes;
};

constexpr std::array commands{
    Command{"/clear", "", "begin a new conversation; one that is kept stays on the disk", Takes::nothing},
    Command{"/undo", "", "take back the last question and its answer", Takes::nothing},
    Command{"/regen", "", "answer the last question again (also /retry)", Takes::nothing},
    Command{"/read", "FILE", "put a text file before the next question", Takes::something},
    Command{"/save", "NAME", "keep the conversation by this name, or as a file: talk.json", Takes::something},
    Command{"/load", "NAME", "continue a saved conversation", Takes::something},
    Command{"/list", "", "list the conversations that have a name", Takes::nothing},
    Command{"/fork", "[NAME]", "continue under another name, and leave the conversation as it is", Takes::anything},
    Command{"/system", "[TEXT]", "show or change the system prompt; - for none", Takes::anything},
    Command{"/set", "[NAME VALUE]", "show or change the sampling settings", Takes::anything},
    Command{"/stats", "", "show what the context holds, and the times", Takes::nothing},
    Command{"/help", "", "this list", Takes::nothing},
    Command{"/exit", "", "leave (also /quit, Ctrl-D, or Ctrl-C twice)", Takes::nothing},
    Command{"/retry", "", "", Takes::nothing},
    Command{"/quit", "", "", Takes::nothing},
};

constexpr std::string_view more_help =
    "A \\ at the end of a line continues it on the next; pasted text is one question. Ctrl-C stops an "
    "answer or clears a line. /think and /no_think go to the model, as does any line that begins with a space.\n";

std::string help_text() {
    std::string text;
    for (const Command& c : commands)
        if (!c.help.empty()) text += fmt::format("{:<21} {}\n", fmt::format("{} {}", c.word, c.argument), c.help);
    return text.append(more_help);
}

std::string trimmed(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t\n");
    return first == std::string_view::npos ? "" : std::string(text.substr(first, text.find_last_not_of(" \t\n") + 1 - first));
}

// True for words of letters only: others, such as /usr/bin, begin a sentence.
bool looks_like_command(std::string_view word) {
    return word.size() > 1 && word[0] == '/' && std::ranges::all_of(word.substr(1), [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
           });
}

std::vector<std::string> beginning_with(std::string_view begin, const std::vector<std::string>& words) {
    std::vector<std::string> result;
    for (const std::string& word : words)
        if (word.starts_with(begin)) result.push_back(word);
    return result;
}

// Names with control characters are left out, as the line editor could not show them. Hidden files come only if a dot was
// typed.
std::vector<std::string> files_beginning_with(const std::string& begin) {
    const size_t slash = begin.rfind('/') + 1;
    std::vector<std::string> result;
    std::error_code error;
    for (std::filesystem::directory_iterator file(slash == 0 ? "." : utf8_path(begin.substr(0, slash)), error), end;
         !error && file != end; file.increment(error)) {
        const std::string name = utf8_text(file->path().filename());
        const bool hidden = name.starts_with('.') && slash == begin.size();
        if (hidden || !name.starts_with(begin.substr(slash)) || name != printable(name, name.size())) continue;
        std::error_code ignored;
        result.push_back(begin.substr(0, slash) + name + (file->is_directory(ignored) ? "/" : ""));
    }
    std::ranges::sort(result);
    return result;
}

} // namespace

// The names of kept conversations and files.
static std::vector<std::string> conversations_beginning_with(const std::string& begin) {
    std::vector<std::string> result;
    for (const KeptConversation& one : kept_conversations())
        if (one.name.starts_with(begin)) result.push_back(one.name);
    std::ranges::sort(result);
    std::ranges::copy(files_beginning_with(begin), std::back_inserter(result));
    return result;
}

static std::string conversation_list() {
    const uint32_t columns = terminal_columns(Stream::error);
    const std::string list = list_conversations(columns == 0 ? SIZE_MAX : columns - 1);
    return list.empty() ? "there is no conversation yet: /save NAME keeps this one\n" : list;
}

// The first word decides what is completed: commands themselves, files, names of conversations, or settings. In other lines
// nothing is completed, as a Tab within a question is a mistake.
std::vector<std::string> complete_chat_line(std::string_view before) {
    const size_t space = before.find(' ');
    if (!before.starts_with('/') || before.find('\n') != std::string_view::npos) return {};
    std::vector<std::string> words;
    if (space == std::string_view::npos) {
        for (const Command& c : commands) words.emplace_back(c.word);
        return beginning_with(before, words);
    }
    const std::string_view word = before.substr(0, space), last = before.substr(before.rfind(' ') + 1);
    if (word == "/read") return files_beginning_with(std::string(last));
    if (word == "/save" || word == "/load") return conversations_beginning_with(std::string(last));
    if (word == "/set" && before.rfind(' ') == space) return beginning_with(last, ChatSettings::names());
    return {};
}

// Returns false if the line is no command, and goes to the model. /think and /no_think are Qwen3's own words to the model.
bool Chat::obey(const std::string& line) {
    const size_t end = line.find_first_of(" \t\n");
    const std::string word = line.substr(0, end), argument = end == std::string::npos ? "" : trimmed(line.substr(end));
    if (!looks_like_command(word) || word == "/think" || word == "/no_think") return false;
    const auto found = std::ranges::find(commands, word, &Command::word);
    std::string complaint;
    if (found == commands.end())
        complaint = fmt::format("unknown command {}: /help lists them; begin the line with a space to send it to the model",
                                printable(word));
    else if (found->takes == Takes::nothing && !argument.empty())
        complaint = fmt::format("{} takes nothing after it; begin the line with a space to send it to the model", word);
    else if (found->takes == Takes::something && argument.empty())
        complaint = fmt::format("{} needs a {}: {} {}", word, word == "/read" ? "file" : "name or a file", word, found->argument);
    if (complaint.empty() && (word == "/regen" || word == "/retry")) { // it fails as any question does
        answer_again();
        return true;
    }
    if (complaint.empty()) try {
            return run_command(word, argument);
        } catch (const Error& error) {
            complaint = error.what();
        }
    write_error(complaint + "\n");
    return true;
}

bool Chat::run_command(std::string_view word, const std::string& argument) {
    if (word == "/exit" || word == "/quit") leaving_ = true;
    if (word == "/help") write_error(help_text());
    if (word == "/undo") undo();
    if (word == "/read") read_file(argument);
    if (word == "/save") save(argument);
    if (word == "/load") load(argument);
    if (word == "/list") write_error(conversation_list());
    if (word == "/fork") fork(argument);
    if (word == "/system") change_system(argument);
    if (word == "/set") change_setting(argument);
    if (word == "/stats") print_statistics();
    if (word == "/clear") clear();
    return true;
}

void Chat::restart() {
    read_text_.clear();
    warned_ = false;
}

// The new conversation has another name, so the old one stays on the disk as it was kept last.
void Chat::clear() {
    turns_.clear();
    restart();
    file_.clear();
    const std::string before = name_;
    begin_kept();
    write_error(before.empty() || !is_there(utf8_path(conversation_path(before)))
                    ? "the conversation is forgotten\n"
                    : fmt::format("a new conversation begins; the one before is kept as {}\n", before));
}

// The old answer comes back if there is no new one.
void Chat::answer_again() {
    const ChatTurns before = turns_;
    if (turns_.take_back_answer())
        reply(before);
    else
        write_error("there is no answer yet\n");
}

void Chat::undo() {
    if (!turns_.take_back_answer()) return write_error("there is nothing to take back\n");
    turns_.take_back_question();
    warned_ = false;
    keep();
    const size_t left = turns_.turns();
    write_error(fmt::format("the last turn is taken back; {} {} left\n", left, left == 1 ? "is" : "are"));
}

void Chat::change_system(const std::string& text) {
    if (!text.empty()) turns_.set_system(text == "-" ? "" : text);
    const std::string& now = turns_.system();
    write_error(now.empty() ? "there is no system prompt\n" : fmt::format("the system prompt is: {}\n", harmless(now)));
}

// The sampler is made from the changed copy first. If it refuses the value, the settings are still the old ones.
void Chat::change_setting(const std::string& argument) {
    if (argument.empty()) return write_error(settings_.list());
    const size_t space = argument.find_first_of(" \t=");
    if (space == std::string::npos) fail("/set needs a name and a value: /set temp 0.7");
    ChatSettings changed = settings_;
    changed.set(argument.substr(0, space), trimmed(argument.substr(space + 1)));
    sampler_ = Sampler(changed.sampling, engine_->unsampled(arguments_.sampling.ignore_end));
    sampler_.constrain(constraint_.get());
    settings_ = changed;
    write_error(fmt::format("sampling  {}\n", sampling_description(settings_.sampling)));
}

// Several files may be read before one question; each is checked together with the files before it, since their sum must fit.
void Chat::read_file(const std::string& path) {
    std::error_code error;
    if (is_there(utf8_path(path)) && !std::filesystem::is_regular_file(utf8_path(path), error))
        fail("{} is not a file", printable(path, 200));
    const std::string text = read_text_file(utf8_path(path), max_read_bytes);
    if (text.find('\0') != std::string::npos || find_invalid_utf8(text)) fail("{} is not a text in UTF-8", printable(path, 200));
    if (text.empty()) fail("{} is empty", printable(path, 200));
    const std::string both = read_text_.empty() ? text : read_text_ + "\n\n" + text;
    const size_t tokens = engine_->model.tokenizer.encode(both).size();
    if (tokens >= context_size())
        fail("{} does not fit: with it the next question has {} tokens, but the context holds {}: start with a larger context "
             "(-c)",
             printable(path, 200), tokens, context_size());
    read_text_ = both;
    write_error(fmt::format("{}: {} bytes are read; {} tokens will precede your next question\n", printable(path, 200),
                            text.size(), tokens));
}

void Chat::write_to(const std::string& path) const {
    save_conversation(path, engine_->model.name, settings_, turns_, session_.cached_ids());
}

static std::string file_of(const std::string& name_or_path) {
    return is_conversation_name(name_or_path) ? conversation_path(name_or_path) : name_or_path;
}

// Throws if that is the file of another conversation, which would be lost.
void Chat::require_free(const std::string& given) const {
    const std::string file = file_of(given);
    const auto is_same = [&](const std::string& other) {
        std::error_code error;
        return std::filesystem::equivalent(utf8_path(file), utf8_path(other), error);
    };
    if (!is_saved_conversation(file) || is_same(file_) || (!name_.empty() && is_same(conversation_path(name_)))) return;
    fail("there is a conversation {} already: /load it, or give another name", printable(given, 200));
}

// A conversation that has a name is kept by it from now on, and no longer by one that was made of the time.
void Chat::save(const std::string& given) {
    const bool is_name = is_conversation_name(given);
    require_free(given);
    if (is_name) make_conversations_directory();
    write_to(file_of(given));
    file_ = file_of(given);
    if (is_name && std::exchange(named_by_time_, false) && name_ != given) {
        std::error_code ignored;
        std::filesystem::remove(utf8_path(conversation_path(name_)), ignored);
    }
    if (is_name) name_ = given;
    write_error(
        fmt::format("{}: {} {} saved\n", printable(given, 200), turns_.turns(), turns_.turns() == 1 ? "turn is" : "turns are"));
}

// Everything is read into copies first, so a damaged file changes nothing. With --resume, flags of the command line have
// precedence over what was saved. The tokens of the file lead to pages of the prefix cache, if these are still there: then the
// first answer runs only what is new. A token is added to them since at least one must be left to run.
void Chat::load(const std::string& given, bool resumed) {
    ChatSettings settings = settings_;
    ChatTurns loaded = turns_;
    const bool is_name = is_conversation_name(given);
    const LoadedConversation file = load_conversation(file_of(given), settings, loaded);
    if (resumed) settings = with_flags(settings);
    if (resumed && arguments_.system) loaded.set_system(*arguments_.system);
    sampler_ = Sampler(settings.sampling, engine_->unsampled(arguments_.sampling.ignore_end));
    sampler_.constrain(constraint_.get());
    const std::string before = sampling_description(std::exchange(settings_, settings).sampling);
    turns_.replace(loaded.messages());
    restart();
    name_ = is_name ? given : "";
    file_ = file_of(given);
    named_by_time_ = false;
    if (file.model != engine_->model.name)
        write_error(fmt::format("it was saved with {}, and continues with {}\n", printable(file.model), engine_->model.name));
    std::vector<uint32_t> ids = file.tokens;
    ids.push_back(0); // whatever comes next
    const uint32_t found = prefix_ && ids.size() <= context_size() ? session_.resume(ids) : 0;
    write_error(fmt::format("{}: {} {} loaded, {} of {} tokens of context{}\n", printable(given, 200), turns_.turns(),
                            turns_.turns() == 1 ? "turn is" : "turns are", conversation_tokens(), context_size(),
                            found > 0 ? fmt::format(", {} in the cache", found) : ""));
    if (const std::string now = sampling_description(settings_.sampling); now != before)
        write_error(fmt::format("sampling  {}\n", now));
}

// The conversation is kept under its old name first.
void Chat::fork(const std::string& name) {
    if (!name.empty() && !is_conversation_name(name)) fail("/fork needs a name of letters, digits, - and _");
    make_conversations_directory();
    const std::string next = name.empty() ? new_conversation_name() : name;
    if (next == name_) fail("the conversation has this name already: give /fork another");
    require_free(next);
    if (!name_.empty()) keep();
    write_to(conversation_path(next));
    const std::string before = std::exchange(name_, next);
    named_by_time_ = false;
    file_.clear();
    write_error(before.empty() ? fmt::format("the conversation goes on as {}\n", name_)
                               : fmt::format("the conversation goes on as {}, and {} stays as it is\n", name_, before));
}

void Chat::print_statistics() const {
    const Totals& t = totals_;
    const double seconds = double(t.ns) * 1e-9;
    const size_t tokens =
        std::min(session_.cached_ids().size(), conversation_tokens()); // the cache may still have turns taken back
    const uint64_t bytes = engine_->forward->kv_bytes_per_token() * tokens;
    write_error(fmt::format("context   {} of {} tokens, {:.1f} MiB of cache: {}\n", tokens, context_size(),
                            double(bytes) / (1 << 20), kv_description(*engine_)));
    write_error(
        fmt::format("turns     {}\nanswers   {} of {} tokens in {:.1f} s\nprompts   {} tokens run, {} found in the cache\n",
                    turns_.turns(), t.answers, t.tokens, seconds, t.prompt_tokens, t.reused_tokens));
    if (drafts_)
        write_error(fmt::format("drafts    {} of {} tokens accepted: {}\n", t.accepted, t.drafted, drafts_->description));
    write_error(fmt::format("device    {}\nsampling  {}\n", engine_->device_name, sampling_description(settings_.sampling)));
}

} // namespace tq
