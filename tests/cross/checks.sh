# shellcheck shell=bash disable=SC2154
# Sourced: counts checks of a program that was built for another system, and compares it with the same program of this one. Needs
# `there`, the words that run a program of the other system, `theirs`, its tq-run, and `ours`, this system's.
passed=0 failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TQ_CACHE_DIR="$work/cache" TQ_CACHE_DISK=0 TQ_PROVE=0 # the check of a device's own check is proves() alone

# check NAME COMMAND...: passes where the command does. Its output is shown where it fails, and where it passes what it puts into `note`.
check() {
    local name=$1 began=$SECONDS note=''
    shift
    if "$@" >"$work/said" 2>&1; then
        passed=$((passed + 1))
        echo "passed: $name${note:+: $note} ($((SECONDS - began)) s)"
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

# A program of tests, which ends with 77 where it has left some out, and says why.
unit() { # PROGRAM ARGUMENTS...
    local status=0 said
    said=$(timeout -k 5 "${unit_limit:-900}" "${there[@]}" "$@" 2>&1) || status=$?
    said=${said//$'\r'/}
    note=$(sed -nE 's/^\[doctest\] test cases: *[0-9]+ \| *([0-9]+ passed) \| *([0-9]+ failed) \| *([0-9]+ skipped).*/\1, \2, \3/p' <<<"$said")
    printf '%s\n' "$said"
    if [[ $status == 77 ]]; then
        note+="; $(grep '^skipped: ' <<<"$said" | sort -u | head -c 200 | tr '\n' ' ')"
        status=0
    fi
    [[ $status == 0 && $note ]] || echo "status $status (124: no end within ${unit_limit:-900} s)" && [[ $status == 0 && $note ]]
}

# Their tq-run, for at most ten minutes: one that hangs fails.
run() { timeout -k 5 "${limit:-600}" "${there[@]}" "$theirs" "$@"; }
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

same_codec() { # TYPE
    local way rotation
    for rotation in wht haar; do
        [[ $rotation == wht || $1 != *u ]] || continue # each quarter of the channels has a rotation of its own
        for way in "$ours" run; do
            "$way" codec encode -t "$1" --rotation $rotation -i "$work/vectors" -o "$work/${way##*/}.codes" &&
                "$way" codec decode -t "$1" --rotation $rotation -i "$work/${way##*/}.codes" -o "$work/${way##*/}.back" || return 1
        done
        cmp "$work/run.codes" "$work/${ours##*/}.codes" && cmp "$work/run.back" "$work/${ours##*/}.back" || return 1
    done
    note="$(stat -c %s "$work/run.codes") B"
}
check_codec() {
    python3 -c 'import random, struct, sys
random.seed(1)
sys.stdout.buffer.write(b"".join(struct.pack("<f", random.gauss(0, 1)) for _ in range(200 * 128)))' >"$work/vectors"
    local type types
    types=$("$ours" codec info | sed -n '1d; s/^\([a-z][a-z0-9_]*\) .*/\1/p')
    check "codec info lists $(wc -w <<<"$types") types" test "$(wc -w <<<"$types")" -ge 16
    for type in $types; do check "codec $type: the bytes are the same" same_codec "$type"; done
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
# Rows of their conformance on Mesa's software driver.
conforms() { # FILTER PART
    local status=0 said counts='([0-9]+ passed[^;]*); seed '
    said=$(run conformance --device llvmpipe --timeout 300 --filter "$1" --shard "$2" 2>&1) || status=$?
    printf '%s\n' "$said"
    [[ $said =~ $counts ]] && note=${BASH_REMATCH[1]}
    [[ $status == 0 && $note && $note != 0\ * ]]
}
# Their check of a device before a model runs there: doctor has a verdict, and a text is ours.
proves() {
    local status=0
    local -x TQ_PROVE=${proof_seconds:-300} TQ_CACHE_DIR=$work/proof
    run doctor --json >"$work/doctor" || status=$?
    note=$(
        python3 - "$work/doctor" <<'END'
import json, sys
found = json.load(open(sys.argv[1]))
[device] = [one for one in found["devices"] if "llvmpipe" in one["name"]]
verdict = device["verdict"]
print(f"{verdict['rows']} rows in {verdict['seconds']:.0f} s")
sys.exit(f"{verdict} {found['problems']}" if verdict["failure"] or verdict["profile"] != "none" or verdict["known"] or verdict["rows"] < 1 else 0)
END
    ) || return 1
    [[ $status == 0 ]] || {
        echo "doctor ends with $status"
        cat "$work/doctor"
        return 1
    }
    ls "$work"/proof/*.verdicts.json || return 1
    run generate --device llvmpipe -p 'Once upon a time' -n 12 --temp 0 >"$work/theirs" 2>"$work/theirs.err" &&
        "$ours" generate --device cpu -p 'Once upon a time' -n 12 --temp 0 >"$work/ours" && cmp "$work/theirs" "$work/ours" &&
        ! grep 'fails the check' "$work/theirs.err"
}
# The same of a driver that is wrong: a line says so, and the text is ours, from the CPU.
notices() {
    local -x TQ_PROVE=${proof_seconds:-300} TQ_CACHE_DIR=$work/wrong
    run generate --device llvmpipe -p 'Once upon a time' -n 12 --temp 0 >"$work/theirs" 2>"$work/theirs.err" || return 1
    cat "$work/theirs.err"
    note=$(sed -n 's/^tq-run: llvmpipe.* fails the check of its kernels, so \([^:]*\):.*/\1/p' "$work/theirs.err")
    grep -q '^tq-run: llvmpipe.* fails the check of its kernels, so .*tq-run doctor checks it again' "$work/theirs.err" &&
        "$ours" generate --device cpu -p 'Once upon a time' -n 12 --temp 0 >"$work/ours" && cmp "$work/theirs" "$work/ours"
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
    for i in $(seq 400); do
        [[ $(curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:$1/health") == 200 ]] && break
        sleep 0.3
    done
    answer=$(curl -s --max-time 300 "http://127.0.0.1:$1/v1/chat/completions" -H 'Content-Type: application/json' \
        -d '{"messages": [{"role": "user", "content": "My name is Mira."}], "temperature": 0}')
    printf '%s\n' "$answer"
    curl -sN --max-time 300 "http://127.0.0.1:$1/v1/chat/completions" -H 'Content-Type: application/json' \
        -d '{"messages": [{"role": "user", "content": "Hello"}], "stream": true}' | grep -q '^data: \[DONE\]' &&
        [[ $answer == *Mira* && $(curl -s "http://127.0.0.1:$1/") == *'<html'* ]] && status=0
    kill "$pid"
    wait "$pid" 2>/dev/null
    [[ $status == 0 ]] || cat "$work/server"
    return $status
}
