"""The system calls of a sandbox: what is refused, and that ordinary work does not notice. The filter call by call is a
unit test; here it is seen to be in force for every command, and on every engine."""
import os
import platform
import shutil
import subprocess
import textwrap
import unittest

from ripcord_test import Config, TestCase, full_run_only, needs

# Runs inside: makes each call with harmless arguments and prints the name of what errno says.
PROBE = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(nr, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return 'done' if r >= 0 else errno.errorcode[ctypes.get_errno()]
"""

EPERM = {
    "unshare": (272, 0x10000000), "setns": (308, 0, 0), "clone, new user": (56, 0x10000011, 0), "clone, high bits": (56, 0x7b10000011, 0),
    "mount": (165, 0, 0, 0, 0, 0), "umount2": (166, 0, 0), "pivot_root": (155, 0, 0), "fsopen": (430, 0, 0), "fsmount": (432, 0, 0, 0),
    "open_tree": (428, -100, 0, 0), "move_mount": (429, 0, 0, 0, 0, 0), "mount_setattr": (442, 0, 0, 0, 0, 0),
    "keyctl": (250, 0, -3, 0), "add_key": (248, 0, 0, 0, 0, 0), "request_key": (249, 0, 0, 0, 0), "bpf": (321, 0, 0, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0), "userfaultfd": (323, 0), "open_by_handle_at": (304, 0, 0, 0),
    "name_to_handle_at": (303, 0, 0, 0, 0, 0), "fanotify_init": (300, 0, 0), "kcmp": (312, 0, 0, 0, 0, 0), "pidfd_getfd": (438, 0, 0, 0),
    "acct": (163, 0), "swapon": (167, 0, 0), "reboot": (169, 0, 0, 0, 0), "init_module": (175, 0, 0, 0), "kexec_load": (246, 0, 0, 0, 0),
    "settimeofday": (164, 0, 0), "quotactl": (179, 0, 0, 0, 0), "iopl": (172, 3), "syslog": (103, 10, 0, 0), "vmsplice": (278, 0, 0, 0, 0),
}
ENOSYS = {"clone3": (435, 0, 0), "io_uring_setup": (425, 1, 0), "io_uring_enter": (426, 0, 0, 0, 0, 0), "io_setup": (206, 1, 0),
          "modify_ldt": (154, 0, 0, 0), "not yet invented": (499, 0)}
FAMILIES = {"ALG": 38, "VSOCK": 40, "PACKET": 17, "BLUETOOTH": 31, "KCM": 41, "TIPC": 30, "XDP": 44, "CAN": 29, "unheard of": 77,
            "ALG, high bits": 38 | 1 << 32}


def on_x86_64(test):
    return unittest.skipUnless(platform.machine() == "x86_64", "the numbers are those of x86-64")(test)


@on_x86_64
class Calls(TestCase):
    def setUp(self):
        super().setUp()
        self.root.ok("up", "a")

    def python(self, code, *options):
        return self.root.ok("exec", "a", *options, "--", "/usr/bin/python3", "-c", PROBE + textwrap.dedent(code)).text

    def ask(self, calls, *options):
        lines = self.python(f"for name, args in {calls!r}.items(): print(name, call(*args), sep='=')", *options).splitlines()
        return dict(line.split("=") for line in lines)

    def test_what_programs_know_as_a_matter_of_rights(self):
        for user in ("1000", "0"):
            self.assertEqual(self.ask(EPERM, "--user", user), dict.fromkeys(EPERM, "EPERM"), user)

    def test_what_is_not_there_at_all(self):
        got = self.ask(ENOSYS)
        if Config.backend:  # an older engine has no default but EPERM
            self.assertIn(got.pop("not yet invented"), ("ENOSYS", "EPERM"))
        self.assertEqual(got, {name: "ENOSYS" for name in got})

    def test_socket_families_and_protocols(self):
        got = self.ask({name: (41, family, 1, 0) for name, family in FAMILIES.items()})
        refusals = {"ENOSYS", "EPERM"} if Config.backend else {"EAFNOSUPPORT"}
        self.assertLessEqual(set(got.values()), refusals, got)
        for family, kind, protocol in ((16, 3, 6), (16, 3, 9), (16, 3, 12), (16, 3, 16), (2, 1, 132), (2, 1, 262), (2, 6, 33)):
            self.assertNotEqual(self.ask({"x": (41, family, kind, protocol)})["x"], "done", (family, protocol))
        fine = {"unix": (41, 1, 1, 0), "tcp": (41, 2, 1, 0), "udp": (41, 2, 2, 17), "route": (41, 16, 3, 0)}
        self.assertEqual(self.ask(fine), dict.fromkeys(fine, "done"))

    def test_filters_of_a_program_end_with_it(self):
        """A listener would keep compiled filters, of which the machine has a limited amount, beyond the end of their process."""
        code = """
            program = ctypes.create_string_buffer((6).to_bytes(4, 'little') + (0x7fff0000).to_bytes(4, 'little'))
            head = ctypes.create_string_buffer((1).to_bytes(8, 'little') + ctypes.addressof(program).to_bytes(8, 'little'))
            libc.prctl(38, 1, 0, 0, 0)
            print(call(317, 1, 8, head), call(317, 1, 0, head))
            """
        self.assertIn(self.python(textwrap.dedent(code)).split(), ([["EINVAL", "done"], ["EPERM", "done"]]))

    def test_a_terminal_is_not_typed_into(self):
        code = ("import os; fd = os.open('/dev/tty', os.O_RDWR); "
                "print(*(call(16, fd, request, b'x') for request in (0x5412, 0x541c, 0x5412 | 0x123 << 32)))")
        self.assertEqual(self.python(code, "-t").split(), ["EPERM"] * 3)

    def test_the_32_bit_entry_is_shut(self):
        code = """
            import mmap, os
            page = mmap.mmap(-1, 4096, prot=7)
            page.write(bytes.fromhex('b814000000cd80c3'))  # mov eax, 20 (getpid of i386); int 0x80; ret
            at = ctypes.addressof(ctypes.c_char.from_buffer(page))
            if os.fork() == 0:
                ctypes.CFUNCTYPE(ctypes.c_int)(at)()
                os._exit(0)
            print(os.waitstatus_to_exitcode(os.wait()[1]))"""
        self.assertEqual(self.python(code), "-31\n")  # SIGSYS

    @needs("own kernel objects")
    def test_pid_1_has_a_filter_too(self):
        if Config.sanitized:
            self.skipTest("a sanitizer has system calls of its own")
        status = self.shell("a", "cat /proc/1/status")
        self.assertIn("Seccomp:\t2\n", status)
        self.assertIn("NoNewPrivs:\t1\n", status)


# Each line: the program, and what it must be able to do. Status 77: not in this image.
WORK = {
    "C compiler": ("gcc", "printf 'int main(void){return 7;}' > m.c && gcc m.c -o m && { ./m; test $? = 7; }"),
    "make": ("make", "printf 'all:\\n\\techo made\\n' > Makefile && make -j4 | grep -q made"),
    "git": ("git", "git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -qm x --allow-empty && git log | grep -q x"),
    "threads and processes of Python": ("python3", """/usr/bin/python3 -c "
import asyncio, concurrent.futures as f, multiprocessing as m, subprocess, sqlite3
assert f.ThreadPoolExecutor(8).submit(pow, 2, 3).result() == 8
with m.Pool(3) as p: assert p.map(abs, [-1, -2]) == [1, 2]
async def main(): return await (await asyncio.create_subprocess_exec('true')).wait()
assert asyncio.run(main()) == 0 and subprocess.run(['true']).returncode == 0
sqlite3.connect('x.db').execute('create table t(a)')
" """),
    "Node": ("node", """node -e "
const { Worker } = require('worker_threads');
require('child_process').execFileSync('true');
require('fs').promises.writeFile('n', 'x').then(() => new Worker('0', { eval: true }).on('exit', c => process.exit(c)));
" """),
    "a debugger on its own child": ("gdb", "printf 'int f(int a){return a+1;} int main(void){return f(41);}' > g.c && gcc -g g.c -o g && "
                                    "gdb -batch -ex 'break f' -ex run -ex 'p a' -ex bt ./g > out 2>&1; "
                                    "grep -q '= 41' out && ! grep -q 'Error disabling address space' out"),
    "strace": ("strace", "strace -f -o out true && grep -q execve out"),
    "Perl": ("perl", "perl -e 'exit(fork() ? (wait(), $? >> 8)[1] : 0)'"),
    "a Go program": ("gofmt", "printf 'package  main' | gofmt | grep -qx 'package main'"),
    "Java": ("java", "java -version 2>&1 | grep -qi version"),
}
LONG_WORK = {
    "Go's compiler": ("go", "mkdir g && cd g && go mod init x 2>/dev/null && printf 'package main\\nfunc main() { c := make(chan int); "
                      "go func() { c <- 1 }(); <-c }' > m.go && GOFLAGS=-mod=mod go build -o m . && ./m"),
    "Java's compiler": ("javac", "printf 'class M { public static void main(String[] a) throws Exception { Thread t = new Thread(() -> {}); "
                        "t.start(); t.join(); } }' > M.java && javac M.java && java M"),
    "cmake": ("cmake", "printf 'cmake_minimum_required(VERSION 3.1)\\nproject(x C)\\n' > CMakeLists.txt && cmake . > /dev/null"),
}


class Work(TestCase):
    """Compilers, interpreters, debuggers: what agents do all day."""

    def try_all(self, work, *options):
        self.root.ok("up", "w", "--memory", "2G", *options)
        tried = set()
        for what, (program, script) in work.items():
            path = "PATH=$PATH:/usr/local/go/bin:/rust/bin; export PATH; "
            done = self.root.run("exec", "w", "--", "sh", "-c", f"{path} command -v {program} >/dev/null || exit 77; "
                                 f"mkdir -p /scratch/w && cd /scratch/w && rm -rf * && {script}", timeout=180)
            if done.code != 77:
                self.assertEqual(done.code, 0, (what, done))
                tried.add(what)
        return tried

    def test_ordinary_work(self):
        self.assertIn("threads and processes of Python", self.try_all(WORK))

    @full_run_only
    @needs("host image")
    @unittest.skipUnless(Config.soak, "only in a soak run")
    def test_compilers_that_take_their_time(self):
        self.try_all(LONG_WORK)

    @full_run_only
    @needs("host image")
    def test_rust(self):
        if not shutil.which("rustc"):
            self.skipTest("no rustc on this machine")
        place = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, check=False).stdout.decode().strip()
        if not os.path.isdir(place):
            self.skipTest("rustc does not say where it is")
        work = {"Rust": ("rustc", "printf 'fn main() { std::thread::spawn(|| {}).join().unwrap(); }' > r.rs && rustc r.rs && ./r")}
        self.root.configure(f"mounts.roots: [{place}]\n")
        self.assertEqual(self.try_all(work, "--mount", f"{place}:/rust:ro"), {"Rust"})
