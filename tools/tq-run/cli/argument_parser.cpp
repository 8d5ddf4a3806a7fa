// Option and ArgumentParser pass each call on to CLI11. Three things are different from CLI11's own behaviour:
// - one_of() and values() leave their words as the description of a validator named "values"; known_values() finds them there for
//   the help, the man pages and shell completion. A later check of the same option does not remove them.
// - A value of an unsigned type must not begin with "-", because CLI11 may read -1 as the greatest number. number() accepts no
//   NaN, which CLI::Range would.
// - list() wraps every check that the option has so far, so that it sees one item at a time. It must therefore come last.
#include "tools/tq-run/cli/argument_parser.h"
#include "base/printable.h"
#include "base/text.h"
#include "tools/tq-run/cli/console.h"
#include <CLI/CLI.hpp>
#include <type_traits>

namespace tq {
namespace {

constexpr const char* values_name = "values"; // of the CLI11 validator whose description has them
constexpr const char* empty_name = "empty";   // of one that marks an option

// "on off auto": "on, off or auto".
std::string alternatives(std::string words) {
    const size_t last = words.rfind(' ');
    if (last == words.npos) return words;
    words.replace(last, 1, " or ");
    for (size_t at = last; at-- > 0;)
        if (words[at] == ' ') words.replace(at, 1, ", ");
    return words;
}

} // namespace

Option Option::group(const std::string& heading) const { return Option(*option_->group(heading)); }
Option Option::description(const std::string& help) const { return Option(*option_->description(help)); }
Option Option::required() const { return Option(*option_->required()); }
Option Option::check(const ValueCheck& check) const { return Option(*option_->check(CLI::Validator(check, ""))); }
Option Option::transform(const ValueCheck& change) const { return Option(*option_->transform(CLI::Validator(change, ""))); }
Option Option::values(const std::string& words) const {
    return Option(*option_->check(CLI::Validator([](std::string&) { return std::string(); }, words, values_name)));
}
Option Option::one_of(const std::string& words) const {
    const auto is_word = [words](std::string& text) {
        const bool known =
            !text.empty() && text.find(' ') == text.npos && (' ' + words + ' ').find(' ' + text + ' ') != text.npos;
        return known ? std::string() : fmt::format("it must be {}, not {}", alternatives(words), printable(text));
    };
    return Option(*option_->check(CLI::Validator(is_word, words, values_name)));
}
Option Option::in_lower_case() const {
    return transform([](std::string& text) {
        text = lowercase(text);
        return std::string();
    });
}
Option Option::each(const std::function<void(const std::string&)>& see) const { return Option(*option_->each(see)); }
Option Option::may_be_empty() const {
    return Option(*option_->check(CLI::Validator([](std::string&) { return std::string(); }, "", empty_name)));
}
Option Option::needs(Option other) const { return Option(*option_->needs(other.option_)); }
Option Option::needs(const std::string& other) const { return Option(*option_->needs(other)); }
Option Option::excludes(Option other) const { return Option(*option_->excludes(other.option_)); }
Option Option::excludes(const std::string& other) const { return Option(*option_->excludes(other)); }
Option Option::expected(int min, int max) const { return Option(*option_->expected(min, max)); }
Option Option::take_all() const { return Option(*option_->take_all()); }
Option Option::join() const { return Option(*option_->multi_option_policy(CLI::MultiOptionPolicy::Join)); }
Option Option::delimiter(char separator) const { return Option(*option_->delimiter(separator)); }

Option Option::list(const std::string& help) const {
    for (int i = 0;; i++) try {
            CLI::Validator& validator = *option_->get_validator(i);
            validator.operation([one = validator](std::string& text) {
                try {
                    for (std::string& item : list_items(text))
                        if (const std::string problem = one(item); !problem.empty()) return problem;
                } catch (const Error& error) {
                    return std::string(error.what());
                }
                return std::string();
            });
        } catch (const CLI::OptionNotFound&) {
            option_->option_text("LIST");
            return description(help).join();
        }
}

std::vector<std::string> list_items(std::string_view list, const char* separators) {
    constexpr size_t max_items = 1024;
    std::vector<std::string> out = split(list, separators);
    if (out.size() > max_items) fail("a list has at most {} items, not {}", max_items, out.size());
    return out;
}

template <class T> Option add_option(const ArgumentParser& to, const std::string& names, T& value, const std::string& value_name,
                                     const std::string& help) {
    const Option option = to.in_group(*to.app().add_option(names, value, help)->option_text(value_name));
    if constexpr (std::is_same_v<T, uint32_t> || std::is_same_v<T, uint64_t>) // CLI11 may read -1 as the largest number
        option.check([](std::string& text) {
            return text.starts_with('-') ? fmt::format("it must be at least 0, not {}", printable(text)) : std::string();
        });
    return option;
}
// An empty text is a value, too: CLI11 would take it for none.
template <> Option add_option(const ArgumentParser& to, const std::string& names, std::optional<std::string>& value,
                              const std::string& value_name, const std::string& help) {
    const auto set = [&value](const std::string& text) { value = text; };
    return to.in_group(*to.app().add_option_function<std::string>(names, set, help)->option_text(value_name));
}
using Text = const std::string&;
template Option add_option(const ArgumentParser&, Text, std::string&, Text, Text);
template Option add_option(const ArgumentParser&, Text, bool&, Text, Text);
template Option add_option(const ArgumentParser&, Text, uint32_t&, Text, Text);
template Option add_option(const ArgumentParser&, Text, int64_t&, Text, Text);
template Option add_option(const ArgumentParser&, Text, uint64_t&, Text, Text);
template Option add_option(const ArgumentParser&, Text, ColorMode&, Text, Text);
template Option add_option(const ArgumentParser&, Text, std::optional<uint32_t>&, Text, Text);
template Option add_option(const ArgumentParser&, Text, std::optional<int64_t>&, Text, Text);
template Option add_option(const ArgumentParser&, Text, std::optional<float>&, Text, Text);
template Option add_option(const ArgumentParser&, Text, std::vector<uint32_t>&, Text, Text);
template Option add_option(const ArgumentParser&, Text, std::vector<double>&, Text, Text);
template Option add_option(const ArgumentParser&, Text, std::vector<std::string>&, Text, Text);

Option add_flag(const ArgumentParser& to, const std::string& names, bool& value, const std::string& help) {
    return to.in_group(*to.app().add_flag(names, value, help));
}

ArgumentParser ArgumentParser::group(const std::string& heading) const {
    ArgumentParser out = *this;
    out.group_ = heading;
    return out;
}

Option ArgumentParser::in_group(CLI::Option& option) const { return Option(group_.empty() ? option : *option.group(group_)); }

Option ArgumentParser::get_option(const std::string& name) const { return Option(*app_->get_option(name)); }

ArgumentParser ArgumentParser::add_command(const std::string& name, const std::string& help) {
    return ArgumentParser(*app_->add_subcommand(name, help)->group("Commands"));
}

void ArgumentParser::require_command() { app_->require_subcommand(1); }
void ArgumentParser::footer(const std::string& text) { app_->footer(text); }
void ArgumentParser::callback(const std::function<void()>& chosen) { app_->callback(chosen); }

std::string known_values(CLI::Option& option) {
    try {
        return option.get_validator(values_name)->get_description();
    } catch (const CLI::OptionNotFound&) {
        return "";
    }
}

std::optional<double> flag_number(const std::string& text) {
    double value = 0;
    return CLI::detail::lexical_cast(text, value) ? std::optional(value) : std::nullopt;
}

bool may_be_empty(const CLI::Option& option) {
    try {
        return const_cast<CLI::Option&>(option).get_validator(empty_name) != nullptr; // CLI11's look-up is not const
    } catch (const CLI::OptionNotFound&) {
        return false;
    }
}

// CLI::Range would accept NaN.
ValueCheck number(double min, double max) {
    return [min, max](std::string& text) {
        const auto value = flag_number(text);
        if (value && *value >= min && *value <= max) return std::string();
        return fmt::format("it must be a number from {} to {}, not {}", min, max, printable(text));
    };
}

} // namespace tq
