# shellcheck shell=bash
# Sourced by ./dev: shows the main commands on a private root, and removes that root afterwards.

DEMO_ROOT=

# Prints the pid of the demo's daemon: only that daemon has the demo's root among its arguments.
demo_daemon() {
    local file
    for file in /proc/[0-9]*/cmdline; do
        if grep -qzxF -- "$DEMO_ROOT" "$file" 2>/dev/null; then
            file=${file%/cmdline}
            printf '%s\n' "${file#/proc/}"
        fi
    done
}

demo_end() {
    local pid
    "$DEMO_RIPCORD" rm -f demo >/dev/null 2>&1 || true
    pid=$(demo_daemon)
    [ -z "$pid" ] || kill "$pid"
    while [ -n "$pid" ] && [ -e "/proc/$pid/exe" ]; do sleep 0.05; done
    rm -rf "$DEMO_ROOT"
}

# shown WORDS...: prints the command as a user would type it, then runs it
shown() {
    local status=0 bold='' plain=''
    [ ! -t 1 ] || bold=$'\033[1m' plain=$'\033[0m'
    printf '\n%s$ %s%s\n' "$bold" "ripcord ${*@Q}" "$plain" | sed "s/'\([a-zA-Z0-9_.=:/-]*\)'/\1/g"
    "$DEMO_RIPCORD" "$@" || status=$?
    [ "$status" -eq 0 ] || printf '(exit status %s)\n' "$status"
}

note() { printf '\n%s\n' "# $*"; }

demo() {
    DEMO_RIPCORD=$1
    DEMO_ROOT=$(mktemp -d)
    export RIPCORD_ROOT=$DEMO_ROOT
    trap demo_end EXIT
    note "A throw-away sandbox: ripcord returns both streams and the exit status unchanged."
    shown run -- sh -c 'id; hostname; echo to-stderr >&2; exit 7'
    note "The sandbox cannot write to this machine, and it has no network."
    shown run -- sh -c 'touch /usr/x; ls /home; tail -n +3 /proc/net/dev'
    note "A named sandbox keeps its files while it is stopped."
    shown up demo --memory 512M
    shown exec demo -- sh -c 'echo kept > notes; seq 3'
    shown stop demo
    shown exec demo -- cat notes
    shown ls
    note "ripcord stores the output: read it again later, from any offset."
    shown ps --all demo
    shown logs demo
    shown rm demo
    printf '\nThe demo used a private state folder and has removed it. Next: build/ripcord up mybox\n'
}
