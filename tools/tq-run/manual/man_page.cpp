// Man pages in roff's man macros, made of the same entries as --help (entries.cpp), so that they cannot disagree. Text from help
// is escaped: roff takes a period or an apostrophe at the beginning of a line for a request, a backslash for an escape, and would
// print a hyphen or a quote as a typographic one, which nobody can paste into a shell.
#include "tools/tq-run/manual/man_page.h"
#include "tools/tq-run/manual/examples.h"
#include "tools/tq-run/manual/variables.h"
#include <algorithm>
#include <fmt/format.h>

namespace tq::manual {
namespace {

// Text without meaning to roff.
// In roff a dot or an apostrophe at the beginning of a line is a request, a backslash an escape, and a hyphen, quotes, ^ and ~
// are printed as other characters than the reader would have to type.
std::string escape(std::string_view text) {
    std::string out;
    bool line_begins = true;
    for (const char c : text) {
        if (line_begins && (c == '.' || c == '\'')) out += "\\&";
        if (c == '\\')
            out += "\\e";
        else if (c == '-')
            out += "\\-";
        else if (c == '\'')
            out += "\\(aq";
        else if (c == '`')
            out += "\\(ga";
        else if (c == '^')
            out += "\\(ha";
        else if (c == '~')
            out += "\\(ti";
        else
            out += c;
        line_begins = c == '\n';
    }
    return out;
}

std::string bold(std::string_view text) { return "\\fB" + escape(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + escape(text) + "\\fR"; }

std::string upper(std::string text) {
    for (char& c : text)
        if (c >= 'a' && c <= 'z') c = char(c - 'a' + 'A');
    return text;
}

std::string header(const std::string& name, const Edition& edition) {
    return fmt::format(".TH {} 1 \"{}\" \"{} {}\" \"User Commands\"\n.nh\n.ad l\n", upper(name), edition.date, edition.program,
                       edition.version);
}

std::string terms(const Flag& flag) {
    std::string text;
    for (const std::string& name : flag.names) text += (text.empty() ? "" : ", ") + bold(name);
    return flag.value.empty() ? text : text + (text.empty() ? "" : " ") + italic(flag.value);
}

// Groups come in the order of their first flags, as in --help.
void add_flags(std::string& page, const Command& command) {
    for (const Flag& flag : command.positionals) page += fmt::format(".TP\n{}\n{}\n", terms(flag), escape(flag.help));
    std::vector<std::string> groups;
    for (const Flag& flag : command.flags)
        if (std::ranges::find(groups, flag.group) == groups.end()) groups.push_back(flag.group);
    for (const std::string& group : groups) {
        if (group != "Options") page += fmt::format(".SS {}\n", escape(group));
        for (const Flag& flag : command.flags)
            if (flag.group == group) page += fmt::format(".TP\n{}\n{}\n", terms(flag), escape(flag.help));
    }
}

// The footer of --help, as it is there.
void add_footer(std::string& page, const std::string& footer) {
    if (footer.empty()) return;
    page += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", escape(footer));
}

std::string synopsis(const std::string& name, const Command& command) {
    std::string line = ".SH SYNOPSIS\n" + bold(name);
    if (!command.commands.empty()) line += " " + italic("COMMAND");
    line += " [" + italic("FLAGS") + "]";
    for (const Flag& flag : command.positionals) line += " " + italic(flag.value);
    return line + "\n";
}

// "Chat with a model": "chat with a model".
std::string small_first(std::string text) {
    if (text.size() > 1 && text[1] >= 'a' && text[1] <= 'z' && text[0] >= 'A' && text[0] <= 'Z')
        text[0] = char(text[0] - 'A' + 'a');
    if (text.ends_with('.')) text.pop_back();
    return text;
}

std::string exit_status(const std::string& command) {
    std::string page = ".SH EXIT STATUS\n";
    for (const ExitStatus& one : exit_statuses(command)) page += fmt::format(".TP\n{}\n{}\n", one.status, escape(one.meaning));
    return page;
}

std::string examples_section(const std::string& command) {
    std::string page;
    for (const Example& one : examples(command)) page += fmt::format(".TP\n{}\n{}\n", bold(one.line), escape(one.what));
    return page.empty() ? "" : ".SH EXAMPLES\n" + page;
}

std::string environment_section() {
    std::string page = ".SH ENVIRONMENT\n";
    for (const Variable& one : variables()) page += fmt::format(".TP\n{}\n{}\n", bold(one.names), escape(one.meaning));
    return page;
}

} // namespace

std::string man_page(const Command& program, const Edition& edition) {
    std::string page = header(program.name, edition);
    page += fmt::format(".SH NAME\n{} \\- {}\n", escape(program.name), escape(small_first(program.help)));
    page += synopsis(program.name, program);
    page += fmt::format(".SH DESCRIPTION\n{}\n", escape(program.help));
    page += fmt::format("Each command has a page of its own, such as\n.BR {}\\-chat (1).\n.SH COMMANDS\n", escape(program.name));
    for (const Command& command : program.commands)
        page += fmt::format(".TP\n{}\n{}\n", bold(command.name), escape(command.help));
    page += ".SH OPTIONS\n";
    add_flags(page, program);
    add_footer(page, program.footer);
    return page + examples_section("") + exit_status("") + environment_section();
}

std::string man_page(const Command& program, const Command& command, const Edition& edition) {
    const std::string name = program.name + '-' + command.name, typed = program.name + ' ' + command.name;
    std::string page = header(name, edition);
    page += fmt::format(".SH NAME\n{} \\- {}\n", escape(name), escape(small_first(command.help)));
    page += synopsis(typed, command);
    page += fmt::format(".SH DESCRIPTION\n{}.\n", escape(command.help));
    page += ".SH OPTIONS\n";
    add_flags(page, command);
    for (const Command& inner : command.commands) {
        page += fmt::format(".SH {}\n{}.\n", escape(upper(inner.name)), escape(inner.help));
        add_flags(page, inner);
    }
    add_footer(page, command.footer);
    return page + examples_section(command.name) + exit_status(command.name) +
           fmt::format(".SH SEE ALSO\n.BR {} (1)\n", escape(program.name));
}

} // namespace tq::manual
