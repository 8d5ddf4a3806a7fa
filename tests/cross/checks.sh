# shellcheck shell=bash disable=SC2154
# Sourced: counts checks of a program that was built for another system, and compares it with the same program of this one. Needs
# `there`, the words that run a program of the other system, `theirs`, its tq-run, and `ours`, this system's.
passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TQ_CACHE_DIR="$work/cache" TQ_CACHE_DISK=0 TQ_PROVE=0

# check NAME COMMAND...: passes where the command does. Its output is shown where it fails.
check() {
    local name=$1 began=$SECONDS
    shift
    if "$@" >"$work/said" 2>&1; then
        passed=$((passed + 1))
        echo "passed: $name ($((SECONDS - began)) s)"
    else
        failed=$((failed + 1))
        printf '*** failed: %s (%s s)\n' "$name" "$((SECONDS - began))"
        tail -n 12 "$work/said"
    fi
}
finish() {
    echo "$passed passed, $failed failed"
    [[ $failed == 0 && $passed != 0 ]]
    exit
}

# Their tq-run, for at most two minutes: one that hangs fails.
run() { timeout -k 5 "${limit:-120}" "${there[@]}" "$theirs" "$@"; }
# Whether their tq-run, with this command, says what ours says.
same() {
    run "$@" >"$work/theirs" 2>"$work/theirs.err" </dev/null || {
        echo "status $?"
        cat "$work/theirs.err"
        return 1
    }
    "$ours" "$@" >"$work/ours" 2>/dev/null </dev/null
    cmp "$work/theirs" "$work/ours"
}
ends_with_status() {
    local status=0 wanted=$1
    shift
    run "$@" || status=$?
    [[ $status == "$wanted" ]] || echo "status $status instead of $wanted" && [[ $status == "$wanted" ]]
}

same_codec() { # TYPE ROTATION
    local way
    for way in "$ours" run; do
        "$way" codec encode -t "$1" --rotation "$2" -i "$work/vectors" -o "$work/${way##*/}.codes" &&
            "$way" codec decode -t "$1" --rotation "$2" -i "$work/${way##*/}.codes" -o "$work/${way##*/}.back" || return 1
    done
    cmp "$work/run.codes" "$work/${ours##*/}.codes" && cmp "$work/run.back" "$work/${ours##*/}.back"
}
check_codec() {
    python3 -c 'import random, struct, sys
random.seed(1)
sys.stdout.buffer.write(b"".join(struct.pack("<f", random.gauss(0, 1)) for _ in range(200 * 128)))' >"$work/vectors"
    local type rotation
    for type in tq2 tq3 tq4 tq8 tq2t tq3t q8_0 q4_0 a4; do
        for rotation in wht haar; do check "codec $type $rotation: the bytes are the same" same_codec $type $rotation; done
    done
}

close_logits() {
    run logits --ids 5,7,11,13 --device cpu "$@" >"$work/theirs" && "$ours" logits --ids 5,7,11,13 --device cpu "$@" >"$work/ours" &&
        python3 - "$work/theirs" "$work/ours" <<'END'
import sys
a, b = ([float(line) for line in open(name)] for name in sys.argv[1:])
error = (sum((x - y) ** 2 for x, y in zip(a, b)) / sum(y * y for y in b)) ** 0.5
print(f"relative error {error:.2g} in {len(a)} logits")
sys.exit(not (len(a) == len(b) > 1000 and error < 1e-5))
END
}
lists_llvmpipe() {
    local said
    said=$(run devices) && printf '%s\n' "$said" && [[ $said == *llvmpipe* ]]
}
says_its_version() { [[ $(run --version) =~ ^tq-run\ [0-9.]+\ \([0-9a-z-]+,\ [a-z]+\ [0-9][^,]*,\ (release|debug)\) ]]; }
remembers() {
    local said
    said=$(printf 'My name is Mira.\nWhat is my name?\n' | run chat --device "$1" -s 1 --temp 0) || return 1
    printf '%s\n' "$said"
    [[ $said == *Mira*Mira* ]]
}
check_texts() {
    check "it names its version" says_its_version
    check "help" same generate --help
    check "a text of 40 tokens is the same" same generate --device cpu -p 'Once upon a time' -n 40 --temp 0
    check "with 8 threads" same generate --device cpu -t 8 -p 'Once upon a time' -n 40 --temp 0
    check "with a compressed cache and a window" same generate --device cpu --kv compact -p 'Once upon a time' -n 40 --temp 0
    check "logits" close_logits
    check "logits with tq4" close_logits -ctk tq4 -ctv tq4
    check "a text beyond ASCII is the same tokens" same tokenize --json --text 'Größe 日本語 e\u0301 🙂'
    check "a chat" remembers cpu
    check "a plan" run plan -c 2k --memory 8G
    check "a file that is not there: status 1" ends_with_status 1 generate -m none.gguf -p x -n 1
    check "a wrong flag: status 2" ends_with_status 2 generate --no-such-flag
}

# Names beyond ASCII and paths beyond 260 characters: of models, prompt caches, texts, and the directory of caches.
model=$PWD/tools/demo-model/demo-q8_0.gguf
in_directory() { # DIRECTORY, below the current one
    mkdir -p "$1/cache" && cp "$model" "$1/modèle.gguf" && printf 'Once upon a time' >"$1/texte.txt" &&
        run generate --device cpu -m "$1/modèle.gguf" -f "$1/texte.txt" -n 8 --temp 0 --prompt-cache "$1/kv.bin" >"$work/first" &&
        [[ -s $1/kv.bin ]] &&
        TQ_CACHE_DIR="$1/cache" TQ_CACHE_DISK=64 run generate --device cpu -m "$1/modèle.gguf" -f "$1/texte.txt" -n 8 --temp 0 \
            --prompt-cache "$1/kv.bin" >"$work/second" && cmp "$work/first" "$work/second" &&
        [[ -z $(find "$1" -name '*.part') ]] && TQ_DEMO_MODEL="$1/modèle.gguf" run generate --device cpu -p x -n 1 &&
        run codec encode -t tq4 -i "$work/vectors" -o "$1/codes" && [[ -s $1/codes ]]
}
says_the_name() {
    local said
    said=$(run generate -m 'größe/日本.gguf' -p x -n 1 2>&1) && return 1
    printf '%s\n' "$said"
    [[ $said == *gr*e/*.gguf* && $said != *'\xef\xbf\xbd'* ]]
}
check_paths() {
    local long=$work/long i
    for i in 1 2 3 4 5 6; do long+=/a-name-of-about-sixty-characters-that-makes-a-path-rather-long-$i; done
    check "names beyond ASCII" in_directory "$work/größe 日本語"
    check "paths of ${#long} characters" in_directory "$long"
    check "an error that names a file beyond ASCII" says_the_name
}

serves() { # PORT
    local pid answer status=1 i
    run serve --device cpu --host 127.0.0.1 --port "$1" >"$work/server" 2>&1 &
    pid=$!
    for i in $(seq 100); do
        [[ $(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$1/health") == 200 ]] && break
        sleep 0.3
    done
    answer=$(curl -s --max-time 60 "http://127.0.0.1:$1/v1/chat/completions" -H 'Content-Type: application/json' \
        -d '{"messages": [{"role": "user", "content": "My name is Mira."}], "temperature": 0}')
    printf '%s\n' "$answer"
    curl -sN --max-time 60 "http://127.0.0.1:$1/v1/chat/completions" -H 'Content-Type: application/json' \
        -d '{"messages": [{"role": "user", "content": "Hello"}], "stream": true}' | grep -q '^data: \[DONE\]' &&
        [[ $answer == *Mira* && $(curl -s "http://127.0.0.1:$1/") == *'<html'* ]] && status=0
    kill "$pid"
    wait "$pid" 2>/dev/null
    [[ $status == 0 ]] || cat "$work/server"
    return $status
}
