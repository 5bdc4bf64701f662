#!/usr/bin/env bash
# Fuzzes one target, or all of them in turn. The last line is `N passed, N failed, N skipped`.
#   tools/fuzz.sh BUILD TARGET|all SECONDS   (BUILD: meson folder with -Dfuzz=true, configured with clang)
# Inputs that reach new code go to BUILD/corpus; copy useful ones to test/fuzz/corpus. A failing input stays in
# BUILD/findings. To reproduce the failure, run the target with that file as its argument.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

BUILD=$1 WANTED=$2 SECONDS_EACH=$3
PASSED=0 FAILED=0

targets() {
    local source
    for source in test/fuzz/fuzz-*.c; do
        source=${source#test/fuzz/fuzz-}
        printf '%s\n' "${source%.c}"
    done
}

fuzz() {
    local name=$1 program=$BUILD/test/fuzz/fuzz-$1
    mkdir -p "$BUILD/corpus/$name" "$BUILD/findings"
    ninja -C "$BUILD" "test/fuzz/fuzz-$name" >&2 || return
    "$program" -max_total_time="$SECONDS_EACH" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 \
        -artifact_prefix="$BUILD/findings/$name-" "$BUILD/corpus/$name" "test/fuzz/corpus/$name"
}

if [ "$WANTED" != all ] && ! targets | grep -xF -- "$WANTED" >/dev/null; then # -q would end before it has read all input, and pipefail would report a failure
    printf "unknown target '%s': one of %s, or all\n" "$WANTED" "$(targets | paste -sd ' ')" >&2
    exit 2
fi
for name in $(targets); do
    [ "$WANTED" = all ] || [ "$WANTED" = "$name" ] || continue
    if fuzz "$name"; then
        PASSED=$((PASSED + 1))
        printf 'ok   fuzz: %s (%s s)\n' "$name" "$SECONDS_EACH"
    else
        FAILED=$((FAILED + 1))
        printf 'FAIL fuzz: %s: the input is in %s/findings\n' "$name" "$BUILD"
    fi
done
printf '%d passed, %d failed, 0 skipped\n' "$PASSED" "$FAILED"
[ "$FAILED" -eq 0 ]
