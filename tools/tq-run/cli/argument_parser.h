// The contents of a command line: commands, their flags, and the values these accept. CLI11 reads it, and only
// argument_parser.cpp, command_line.cpp, main.cpp and manual/ include it: its header takes longer to compile than a command does.
#pragma once
#include "base/error.h"
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
} // namespace CLI

namespace tq {

// The command line was wrong: exit status 2.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Checks the text of a value; returns what is wrong with it, or nothing. As a transformation it may replace the text.
using ValueCheck = std::function<std::string(std::string&)>;

// A flag, with CLI11's methods; each of these returns it.
class Option {
  public:
    explicit Option(CLI::Option& option) : option_(&option) {}

    Option group(const std::string& heading) const; // empty: hidden
    Option description(const std::string& help) const;
    Option required() const;
    Option check(const ValueCheck& check) const;
    Option transform(const ValueCheck& change) const;
    Option one_of(const std::string& words) const; // "on off auto": accepts these and no others
    Option in_lower_case() const;                  // of the text, before it is checked: Q8_0 is q8_0
    Option values(const std::string& words) const; // values that shells complete, "FILE" being any file; accepts others too
    Option each(const std::function<void(const std::string&)>& see) const; // called with every value
    Option may_be_empty() const; // "" has a meaning; for all others it is an error (command_line.cpp)
    Option needs(Option other) const;
    Option needs(const std::string& other) const;
    Option excludes(Option other) const;
    Option excludes(const std::string& other) const;
    Option expected(int min, int max) const; // values
    Option take_all() const;                 // values, if the flag is given several times
    Option join() const;                     // values of a flag that is given several times, to one text of several lines
    Option delimiter(char separator) const;  // of the values of a list
    // The text is a list of the values that were described so far, as list_items() splits it: each of these is checked alone.
    Option list(const std::string& help) const;

  private:
    CLI::Option* option_;
};

// The program, or one of its commands.
class ArgumentParser {
  public:
    explicit ArgumentParser(CLI::App& app) : app_(&app) {}

    Option get_option(const std::string& name) const;

    ArgumentParser add_command(const std::string& name, const std::string& help);
    void require_command();
    void footer(const std::string& text);
    void callback(const std::function<void()>& chosen); // called after parsing, if the line names this command

    // The same command: flags that are added to the result have this heading in the help.
    ArgumentParser group(const std::string& heading) const;

    CLI::App& app() const { return *app_; }
    Option in_group(CLI::Option& option) const;

  private:
    CLI::App* app_;
    std::string group_ = {}; // empty: CLI11's own
};

// The flag sets `value`, which is of a type that argument_parser.cpp lists. Its names: "-n,--predict"; value_name: "N".
template <class T> Option add_option(const ArgumentParser& to, const std::string& names, T& value, const std::string& value_name,
                                     const std::string& help);
Option add_flag(const ArgumentParser& to, const std::string& names, bool& value, const std::string& help = "");

// "a,b" as {"a", "b"}, also by line ends, if a flag is given several times; an empty list as {""}. Throws Error for more
// than 1024 items.
std::vector<std::string> list_items(std::string_view list, const char* separators = ",\n");

// Returns the words of one_of or values; empty without any.
std::string known_values(CLI::Option& option);

bool may_be_empty(const CLI::Option& option);

// Returns the number that `text` is as a flag's value, 1e3 too; nothing if it is none.
std::optional<double> flag_number(const std::string& text);

// Accepts numbers in [min, max].
ValueCheck number(double min, double max);

// Accepts texts for which `parse` does not throw.
template <class Parse> ValueCheck parsed_by(Parse parse) {
    return [parse](std::string& text) {
        try {
            parse(text);
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
}

} // namespace tq
