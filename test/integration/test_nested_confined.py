"""Isolation `confined` where it is for: in containers with no option at all, as root and as an ordinary user."""
import test_nested
from ripcord_test import TestCase, full_run_only, needs, only_on

# Prints a line for each fact. `sleep 4321` is what must be gone.
SCRIPT = r"""
R=/opt/ripcord/ripcord
fact() { name=$1; shift; echo "$name: $("$@" 2>/dev/null | tr '\n' ' ')"; }
in_a() { $R exec a -- sh -c "$1"; }
sleepers() { ps ax -o args= | grep -c '^sleep 4321'; }
$R up a --isolation confined >/dev/null 2>&1 || exit
$R up other --isolation confined >/dev/null 2>&1
other=$($R exec other -- sh -c 'echo secret >secret; pwd')
fact streams sh -c 'printf in | '$R' exec -i a -- sh -c "cat; echo err >&2; exit 7" 2>&1; echo " $?"'
fact large sh -c "$R exec a -- head -c 5000000 /dev/zero | wc -c"
fact user in_a '[ $(id -u) = '$(id -u)' ] && echo same || echo own'
fact outside in_a "cat /etc/shadow /proc/1/cmdline /proc/1/environ $other/secret; ls / /var/lib/ripcord $HOME /proc; for f in /tmp/x /usr/x /dev/shm/x; do (echo x >\$f) && echo wrote \$f; done; kill -0 1 && echo reached; echo end"
fact trees sh -c "$R exec a --timeout 700ms -- sh -c '(setsid sleep 4321 &); (setsid setsid sh -c \"sleep 4321 & wait\" &); sleep 4321'; echo \$?"
fact cause sh -c "$R ps a --all --json | grep -oE '\"(cause|isolation)\": ?\"(timeout|confined)\"' | tr -d ' ' | sort -u"
fact left sleepers
echo copied >/tmp/in
fact copies sh -c "$R cp /tmp/in a:/home/agent/f && $R exec a -- cat f && $R cp a:f /tmp/out && cat /tmp/out"
fact detached sh -c "$R exec --detach a -- sh -c 'sleep 0.5; (setsid sleep 4321 &); sleep 1; exit 5' | wc -l"
daemon=$(pgrep -x ripcordd)
kill -9 $daemon
fact survived sh -c "$R ls | grep -c 'a .*running.*confined'; [ \$(pgrep -nx ripcordd) != $daemon ] && echo restarted"
fact packages $R exec a -- bash -c 'port=${NPM_CONFIG_REGISTRY#*127.0.0.1:}; exec 3<>/dev/tcp/127.0.0.1/${port%%/*};
  printf "GET /npm/-/ping HTTP/1.1\r\nHost: x\r\n\r\n" >&3; head -n 1 <&3 | tr -d "\r"'
fact says sh -c "$R show a | grep -E '^Isolation' | tr -s ' '"
fact paused sh -c "$R pause a; echo \$?"
fact limited sh -c "$R run --isolation confined --memory 1G -- true; echo \$?"
$R rm -f a other >/dev/null
sleep 1
fact cleaned sh -c "ps ax -o args= | grep -cE '^ripcord-shim [0-9a-f]{16}'; ps ax -o args= | grep -c '^sleep 4321'; ls $(dirname $(dirname $other))/.. 2>/dev/null | wc -l"
"""


@needs("own kernel objects")
@only_on("native")
@full_run_only
class ConfinedInDocker(TestCase):
    def setUp(self):
        if test_nested.Config.sanitized:
            self.skipTest("the image has no libraries of sanitizers")
        if not test_nested.has_scopes():
            self.skipTest("Landlock of this kernel has no scopes")
        super().setUp()

    def facts(self, options):
        done = test_nested.Nest.command("docker", options, SCRIPT)
        facts = {name: value.strip() for name, _, value in (line.partition(": ") for line in done.stdout.splitlines())}
        self.assertTrue(facts, done)
        return facts

    def check(self, options, user, outside):
        self.assertEqual(self.facts(options), {
            "streams": "inerr  7", "large": "5000000", "user": user, "outside": outside, "trees": "137",
            "cause": '"cause":"timeout" "isolation":"confined"', "left": "0", "copies": "copied copied", "detached": "1", "survived": "1 restarted",
            "packages": "HTTP/1.1 200 OK", "says": "Isolation confined", "paused": "7", "limited": "125", "cleaned": "0 0 0",
        })

    def test_without_an_option(self):
        self.check("", "own", "wrote /dev/shm/x end")

    def test_as_a_user(self):
        self.check("--user 1000 -e HOME=/home/agent", "same", "end")
