// The shells' halves of completion. Each passes the words to `tq-run complete` and shows what comes back. What is hard is that
// bash cuts words at the characters of COMP_WORDBREAKS, = and : among them, so its script joins the pieces again, and removes
// from each answer what bash has already taken for earlier words (`before`). ~ is expanded by hand, since the shell has not done
// it at that moment.
#include "tools/tq-run/manual/completion.h"

namespace tq::manual {
namespace {

constexpr std::string_view bash = R"end(# bash completion of tq-run; made by: tq-run completion bash
_tq_run() {
    local words=("${COMP_WORDS[0]}") piece glue='' i current before line path
    # bash has cut the words at = and :, too
    for ((i = 1; i <= COMP_CWORD; i++)); do
        piece=${COMP_WORDS[i]}
        if [[ $piece =~ ^[=:]+$ && $i -gt 1 ]]; then
            words[-1]+=$piece glue=1
        elif [[ $glue ]]; then
            words[-1]+=$piece glue=''
        else
            words+=("$piece")
        fi
    done
    current=${words[-1]}
    before=''
    [[ $current != *[=:]* || $COMP_WORDBREAKS != *[=:]* ]] || before=${current%"${current##*[=:]}"}
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
        :files | :directories)
            compopt -o filenames
            while IFS= read -r path; do
                COMPREPLY+=("$path")
            done < <(if [[ $line == :files ]]; then compgen -f -- "${current#"$before"}"; else compgen -d -- "${current#"$before"}"; fi)
            ;;
        *)
            line=${line%%$'\t'*}
            COMPREPLY+=("${line#"$before"}")
            ;;
        esac
    done < <("${words[0]/#\~/$HOME}" complete "${words[@]}" 2>/dev/null)
}
complete -F _tq_run tq-run
)end";

constexpr std::string_view zsh = R"end(#compdef tq-run
# zsh completion of tq-run; made by: tq-run completion zsh
_tq_run() {
    local -a given candidates
    local line word paths=''
    given=("${(@Q)words[1,CURRENT]}")
    for line in "${(@f)$("${given[1]/#\~/$HOME}" complete "${(@)given}" 2>/dev/null)}"; do
        case $line in
        '') ;;
        :files | :directories) paths=$line ;;
        *$'\t'*) word=${line%%$'\t'*} && candidates+=("${word//:/\\:}:${line#*$'\t'}") ;;
        *) candidates+=("${line//:/\\:}") ;;
        esac
    done
    (( $#candidates )) && _describe tq-run candidates
    if [[ -n $paths ]]; then
        [[ $PREFIX == -*=* ]] && compset -P '*='
        if [[ $paths == :files ]]; then _files; else _files -/; fi
    fi
}
if [[ ${funcstack[1]} == _tq_run ]]; then
    _tq_run "$@"
else
    compdef _tq_run tq-run
fi
)end";

constexpr std::string_view fish = R"end(# fish completion of tq-run; made by: tq-run completion fish
function __tq_run_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l before (string match -r '^--?[^=]*=' -- "$current"; or echo '')
    set -l rest (string replace -r '^--?[^=]*=' '' -- "$current")
    for line in ($words[1] complete $words "$current" 2>/dev/null)
        switch $line
            case :files
                printf '%s\n' $before(__fish_complete_path "$rest")
            case :directories
                printf '%s\n' $before(__fish_complete_directories "$rest")
            case '*'
                printf '%s\n' $line
        end
    end
end
complete -c tq-run -f -a '(__tq_run_complete)'
)end";

} // namespace

std::string_view completion_script(std::string_view shell) {
    return shell == "bash" ? bash : shell == "zsh" ? zsh : shell == "fish" ? fish : std::string_view();
}

} // namespace tq::manual
