#!/usr/bin/env bash
# Runs all checks of the sources, one line each. The last line is `N passed, N failed, N skipped`.
#   tools/lint.sh BUILD [deep]   (BUILD: a configured meson folder; clang-tidy reads its compile commands)
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

BUILD=${1:-build}
# clang's analyzer takes ten times as long as all other checks together, so only `./dev lint` and the soak run it.
SHALLOW=('--checks=-clang-analyzer-*')
[ "${2:-}" != deep ] || SHALLOW=()
PASSED=0 FAILED=0
# Lists the files of the tree, committed or not, without ignored ones.
files() { git ls-files -co --exclude-standard -- "$@" | while read -r f; do [ ! -f "$f" ] || echo "$f"; done; }

check() {
    local name=$1 output since=$SECONDS
    shift
    if output=$("$@" 2>&1); then
        printf 'ok   lint: %s (%d s)\n' "$name" "$((SECONDS - since))"
        PASSED=$((PASSED + 1))
    else
        printf 'FAIL lint: %s\n%s\n' "$name" "$output"
        FAILED=$((FAILED + 1))
    fi
}

lint_format() {
    local f bad=0
    while read -r f; do
        clang-format "$f" | diff -u --label "$f" --label "$f (as ./dev format makes it)" "$f" - || bad=1
    done < <(files '*.c' '*.h')
    return $bad
}

# With _FORTIFY_SOURCE sprintf is a macro, and banned.h cannot poison a macro.
tidy() {
    xargs -P "$(nproc)" -n 4 clang-tidy -p "$BUILD" --quiet --extra-arg=-U_FORTIFY_SOURCE "${SHALLOW[@]}" "$@" 2>&1 |
        grep -vE '^[0-9]+ (warnings?|errors?)|^Suppressed|^Use -header-filter|^Error while processing'
}

lint_tidy() {
    local found
    # Its findings are searched below, and a missing program has none.
    command -v clang-tidy >/dev/null || { echo "clang-tidy is not installed" && return 1; }
    found=$(
        files 'src/*.c' 'test/unit/*.c' | grep -v '^src/lib/base/err.c$' |
            tidy --extra-arg=-include --extra-arg="$PWD/tools/tidy.h" --extra-arg=-I"$PWD/src"
        files src/lib/base/err.c | tidy
    )
    ! grep -A6 -E 'warning:|error:' <<<"$found"
}

lint_cppcheck() {
    cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,portability,performance --inline-suppr \
        --suppressions-list=tools/cppcheck.suppress -j "$(nproc)" -Isrc -D_GNU_SOURCE \
        --include=tools/cppcheck.h src
}

lint_shell() { files dev '.ci/run' '*.sh' 'images/default/bin/*' packaging/tarball/install 'packaging/debian/ripcord.p*' | xargs shellcheck -x; }

lint_python() {
    files '*.py' | xargs python3 -c '
import ast, sys
for name in sys.argv[1:]:
    ast.parse(open(name, encoding="utf-8").read(), name)'
}

# Runs one of the programs tools/check-*.py, if its self-test passes.
checker() { "tools/check-$1.py" --self-test && "tools/check-$1.py"; }

# A file over 800 lines, or a tab in a source, is nearly always an accident. clang-format leaves comments alone, so their
# width is checked here; tables of data may be wider. A comment mark that stands alone was put there by clang-format.
lint_shape() {
    local f bad=0
    while read -r f; do
        [ "$(wc -l <"$f")" -le 800 ] || { echo "$f is over 800 lines" && bad=1; }
    done < <(files 'src/*.c' 'src/*.h' '*.py')
    ! files 'src/*.c' 'src/*.h' | xargs grep -nP '\t' || bad=1
    ! files 'src/*.c' 'src/*.h' 'include/*.h' | xargs grep -nP '^(?=.{101})\s*(/\*|\*)' || bad=1
    ! files 'src/*.c' 'src/*.h' 'include/*.h' | xargs grep -nPzo '\n[ \t]*/\* [^\n]*[^*/\s]\n[ \t]*\*/\n' | tr '\0' '\n' || bad=1
    return $bad
}

# The umask belongs to the whole process. A temporary change affects files that other threads make, so a program sets the
# umask only once, at its start.
lint_umask() {
    ! files 'src/*.c' | grep -vxE 'src/(daemon/main/process|supervisor/shim/(job|init|exec-child)|guest/(main|child)|image/(archive|build)/main)\.c' |
        xargs grep -nw umask\(
}

check clang-format lint_format
check layers checker deps
check "paths by descriptor" checker paths
check names checker names
check words checker words
check links checker links
check "routes and openapi.yaml" checker routes
check "docs of security tests" checker security
check "sources of fuzz targets" tools/check-fuzz.py "$BUILD"
check shape lint_shape
check umask lint_umask
check shellcheck lint_shell
check python lint_python
check cppcheck lint_cppcheck
check clang-tidy lint_tidy
printf '%d passed, %d failed, 0 skipped\n' "$PASSED" "$FAILED"
[ "$FAILED" -eq 0 ]
