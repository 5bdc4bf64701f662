# shellcheck shell=bash
# Sourced by ./dev: the parts of the test run. Each part is a command whose log ends with
# `N passed, N failed, N skipped`. The logs stay in build/logs; the logs of failed parts are printed.

LOGS=build/logs
PASSED=0 FAILED=0 SKIPPED=0
# Undefined behaviour ends the program, because a line in the log of a removed shim would go unseen. The build uses
# little optimisation, because it is compiled for one run. Some warnings are then wrong; the first build checks for warnings.
MESON_ASAN=('-Db_sanitize=address,undefined' '-Doptimization=1' '-Dc_args=-fno-sanitize-recover=undefined -g1')
MESON_TSAN=('-Db_sanitize=thread')

# part NAME COMMAND...: runs a part, counts its results, and continues after a failure
part() {
    local name=$1 status=0 since=$SECONDS
    shift
    "$@" >"$LOGS/$name.log" 2>&1 </dev/null || status=$?
    count "$name" "$status" "$((SECONDS - since)) s"
}

# beside NAME COMMAND...: starts a part that only computes, in the background with idle priority. Tests mostly wait, so
# it takes almost no extra time and disturbs no test. joined NAME waits for it and counts its results.
declare -A BESIDE=()

beside() {
    local name=$1
    shift
    (
        chrt --idle -p 0 "$BASHPID" >/dev/null 2>&1 || renice -n 19 -p "$BASHPID" >/dev/null
        ionice -c idle -p "$BASHPID" >/dev/null 2>&1 || true
        "$@"
    ) >"$LOGS/$name.log" 2>&1 </dev/null &
    BESIDE[$name]=$!
}

joined() {
    local status=0 since=$SECONDS
    wait "${BESIDE[$1]}" || status=$?
    count "$1" "$status" "beside, waited $((SECONDS - since)) s"
}

# count NAME STATUS TIME: adds the numbers in the log of a finished part
count() {
    local name=$1 status=$2 log=$LOGS/$1.log counts passed failed skipped
    counts=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1) || true
    read -r passed _ failed _ skipped _ <<<"${counts:-0 passed, 0 failed, 0 skipped}"
    # A part that fails without a failed test counts as one failure. Status 77 means that it cannot run here.
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ] || [ "$failed" -gt 0 ] || failed=1
    PASSED=$((PASSED + passed)) FAILED=$((FAILED + failed)) SKIPPED=$((SKIPPED + skipped))
    report "$name" "$log" "$failed" "$3: $passed passed, $failed failed, $skipped skipped"
}

# Prints the failed tests of a log with their output, or the end of the log if no test failed.
failures() {
    if grep -q '^FAIL ' "$1"; then
        awk '/^FAIL /{shown=1} /^(ok|skip) |^[0-9]+ passed/{shown=0} shown' "$1"
    else
        tail -n 100 "$1"
    fi
}

report() {
    local name=$1 log=$2 failed=$3 line=$4
    if [ "$failed" -eq 0 ]; then
        printf 'ok    %-14s %s\n' "$name" "$line"
    else
        printf 'FAIL  %-14s %s\n----- %s\n' "$name" "$line" "$log"
        failures "$log"
        printf -- '-----\n'
    fi
    grep -E '^skip ' "$log" | sort -u | sed 's/^/        /' || true
}

finish() {
    printf '%s passed, %s failed, %s skipped\n' "$PASSED" "$FAILED" "$SKIPPED"
    [ "$FAILED" -eq 0 ]
}

build_part() {
    local dir=$1
    shift
    configure "$dir" "$@" && compile "$dir"
}

unit_tests() { python3 tools/meson-tests.py "$1" --suite unit; }
corpus_replay() { python3 tools/meson-tests.py "$1" --suite fuzz; }

# Tests wait more than they compute, so more tests than processors can run at once.
integration_tests() {
    local dir=$1
    shift
    python3 test/integration/run.py --bin "$dir" --jobs "$((JOBS + 2))" "$@"
}

# In a virtual machine with Debian. A machine that qemu translates is nine times slower, so only modules that depend on
# the kernel, on cgroup v2 or on systemd run there.
vm_tests() { python3 test/vm/run.py --suite "$@"; }
IN_MACHINES=causes,confined,confined_hostile,disk,hogs,kernel_memory,life,network,reconcile,refusals,restart,rootless,run,streams,systemd

test_vm() {
    local suite
    part build build_part build -Dwerror=true
    for suite in bookworm trixie; do
        part "vm-$suite" vm_tests "$suite" --only "$IN_MACHINES" --patience 2 --jobs "$JOBS"
        part "vm-$suite-docker" vm_tests "$suite" --engine docker --only causes,life,restart,run --patience 2 --jobs "$JOBS"
        part "vm-$suite-nested" vm_tests "$suite" --only nested -k privileged --patience 2 --jobs "$JOBS"
    done
    part dist-build-vm dist_part tarball deb
    part dist-vm dist_tests --only machine --jobs 1
}

# A few tests on Debian 13 with systemd and cgroup v2, two minutes long. The image is made beside other parts, and only when
# the cache does not have it. The machine runs alone, at the end: beside others at idle priority it gets so little time that
# sandboxes do not start in the engine's 30 s, and at any other priority it delays their tests.
SMOKE=(trixie --smoke --memory 3G --limit 600 --patience 5 --jobs 3)

test_quick() {
    part build build_part build -Dwerror=true
    part unit unit_tests build
    part corpus corpus_replay build
    part native integration_tests build --quick
}

# The packages of a test run are beside those that `./dev dist` made.
dist_part() { tools/dist/dist.py --out build/test-dist "$@"; }
dist_tests() { python3 test/dist/run.py --dist build/test-dist --jobs "$((JOBS + 2))" "$@"; }

# Tests that do not depend on the engine run only on native, and tests that mostly wait run without sanitizers. The full
# set takes twice as long; --soak runs it.
SAME_ON_ALL=cli,daemon,http,input,packages,packages_server,packages_hostile,packages_tools,relay_faults
INSTRUMENTED=faults,packages_server,packages_hostile,relay_faults,restart,run,streams,torture
IN_MEMORY=caches,files,image_export,image_pull,packages,packages_live,packages_tools,rootless
# What gVisor changes, and that the rest of a sandbox's life is the same.
ON_GVISOR=gvisor,causes,life
ON_GVISOR_ALL=$ON_GVISOR,exec_http,files,input,isolation,large_commands,packages,ports,run,secrets,sessions,streams
ON_PODMAN=cache_layers,causes,docker_sandbox,docker_ensure,guest,life,restart,run

# Native tests run on the disk, as in real use. Tests that make and remove thousands of trees run in memory, because ext4
# then searches long for a free inode. All other parts run in memory too: it is another file system, and twice as fast.
test_full() {
    part build build_part build -Dwerror=true
    beside build-asan build_part build-asan "${MESON_ASAN[@]}"
    beside vm-image vm_tests "${SMOKE[@]}" --image-only
    beside gvisor-build tools/gvisor/gvisor.py # takes minutes at the first time
    part unit unit_tests build
    part corpus corpus_replay build
    part native integration_tests build --without "$IN_MEMORY"
    part native-memory integration_tests build --memory --only "$IN_MEMORY"
    joined build-asan
    joined vm-image
    beside lint tools/lint.sh build
    beside dist-build dist_part tarball
    part unit-asan unit_tests build-asan
    part corpus-asan corpus_replay build-asan
    part native-asan integration_tests build-asan --memory --only "$INSTRUMENTED"
    part docker integration_tests build --engine docker --memory --without "$SAME_ON_ALL"
    part podman integration_tests build --engine podman --memory --only "$ON_PODMAN"
    joined gvisor-build
    part gvisor integration_tests build --engine gvisor --memory --only "$ON_GVISOR"
    joined lint
    joined dist-build
    part dist dist_tests --only tarball
    part vm-smoke vm_tests "${SMOKE[@]}"
}

test_soak() {
    test_full
    part dist-build-all dist_part
    part dist-all dist_tests --without machine
    test_vm
    part lint-deep tools/lint.sh build deep
    part native-asan-all integration_tests build-asan
    part docker-all integration_tests build-asan --engine docker
    part podman-all integration_tests build --engine podman
    part gvisor-all integration_tests build --engine gvisor --memory --only "$ON_GVISOR_ALL"
    part build-tsan build_part build-tsan "${MESON_TSAN[@]}"
    part unit-tsan unit_tests build-tsan
    part native-tsan integration_tests build-tsan
    need fuzz
    part fuzz cmd_fuzz all 600
    part soak integration_tests build --soak
    part soak-docker integration_tests build --engine docker --soak --only model
}

cmd_test() {
    case ${1:-} in
    --quick) need build test ;;
    --vm) need build test dist vm ;;
    --soak) need build test engines lint dist dist-test vm ;;
    "") need build test engines lint dist vm ;;
    *) die "unknown option '$1' of test: --quick, --vm or --soak" ;;
    esac
    mkdir -p "$LOGS"
    case ${1:-} in
    --quick) test_quick ;;
    --vm) test_vm ;;
    --soak) test_soak ;;
    *) test_full ;;
    esac
    finish
}

# instrumented NAME MESON OPTION...: runs the unit and integration tests on a separate build
instrumented() {
    local name=$1
    shift
    need build test
    mkdir -p "$LOGS"
    part "build-$name" build_part "build-$name" "$@"
    part "unit-$name" unit_tests "build-$name"
    part "native-$name" integration_tests "build-$name"
    finish
}
