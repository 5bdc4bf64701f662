"""Memory that the kernel holds for a sandbox counts against its memory limit, by whatever means it is taken."""
import time

from ripcord_test import TestCase, alone, needs, wait_until

LIMIT = 128 << 20
CAP = 3 * LIMIT  # a probe that reaches it says so and stops

PROBE = f"""
import os, resource, socket, struct
CAP = {CAP}
held, kept = 0, []

def sends(s, data):
    s.setblocking(False)
    n = 0
    try:
        while held + n < CAP:
            n += s.send(data)
    except OSError:
        pass
    return n

def pair(kind):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    return a, b

def wide(s):
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        s.setsockopt(socket.SOL_SOCKET, option, 1 << 30)  # as much as the machine allows
    return s
"""
FEW_TCP = """
l = socket.create_server(("127.0.0.1", 0))
for i in range(64):
    c = wide(socket.create_connection(l.getsockname()))
    a, _ = l.accept()
    kept += [wide(a), c]
    held += sends(c, bytes(65536)) + sends(a, bytes(65536))
"""
MANY_TCP = """
l = socket.create_server(("127.0.0.1", 0), backlog=1000)
while held < CAP:
    c = socket.create_connection(l.getsockname())
    a, _ = l.accept()
    kept += [a, c]
    held += sends(c, bytes(65536)) + sends(a, bytes(65536))
"""
UDP = """
packet, tried = bytes(32768), 0
while tried < CAP:
    r = wide(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    r.bind(("127.0.0.1", 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(r.getsockname())
        for i in range(r.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // len(packet)):
            tried += s.send(packet)
    kept.append(r)
for r in kept:  # what was not dropped
    r.setblocking(False)
    try:
        while True:
            held += len(r.recv(65536))
    except OSError:
        pass
"""
NETLINK = """
ask = struct.pack("IHHIIBBHiII", 32, 18, 1, 1, 0, 0, 0, 0, 1, 0, 0)  # RTM_GETLINK, interface 1
while held < CAP:
    s = wide(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
    s.bind((0, 0))
    for i in range(s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 1500):
        s.send(ask)
    kept.append(s)
    held += s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
"""
UNIX = """
while held < CAP:
    a, b = pair(socket.SOCK_STREAM)
    kept += [wide(a), wide(b)]
    held += sends(a, bytes(65536)) + sends(b, bytes(65536))
"""
PIPES = """
while held < CAP:
    r, w = os.pipe()
    os.set_blocking(w, False)
    held += os.write(w, bytes(65536))
"""
QUEUES = """
import ctypes
libc = ctypes.CDLL(None)
message = (8).to_bytes(8, "little") + bytes(8192)
while held < CAP:
    q = libc.msgget(0, 0o1600)
    n = 0
    while q >= 0 and libc.msgsnd(q, message, 8192, 0o4000) == 0:
        n += 8192
    if not n:
        break
    held += n
"""
MAPPED = """
import ctypes, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
open("/tmp/f", "w").write("x")
for i in range(12):  # files without descriptors: RLIMIT_NOFILE does not see them
    if os.fork():
        continue
    for n in range(60000):
        fd = os.open("/tmp/f", os.O_RDONLY)
        libc.mmap(None, ctypes.c_size_t(4096), 1, 2, fd, ctypes.c_long(0))
        os.close(fd)
    time.sleep(1000)
for i in range(12):
    os.wait()  # each is killed
"""
END = "print('held', held, flush=True)\n"


@alone
class KernelMemory(TestCase):
    def setUp(self):
        super().setUp()
        self.root.ok("up", "a", "--memory", str(LIMIT))

    def bounded(self, probe):
        """Either the kernel refuses more at some point below the limit, or the command is killed like any other that is over it."""
        done = self.root.run("exec", "a", "--", "python3", "-c", PROBE + probe + END)
        if done.code == 0:
            self.assertLess(int(done.text.split()[1]), LIMIT, probe)
        else:
            self.assertEqual(self.root.exec_info("a")["end"]["cause"], "oom", done)
        self.assertEqual(self.shell("a", "echo still there"), "still there\n")

    def test_queues_of_tcp(self):
        self.bounded(FEW_TCP)

    def test_queues_of_very_many_tcp_sockets(self):
        self.bounded(MANY_TCP)

    def test_queues_of_udp(self):
        self.bounded(UDP)

    def test_queues_of_netlink(self):
        self.bounded(NETLINK)

    def test_a_process_that_the_command_left_behind(self):
        """The watch goes on as long as any process is left."""
        self.root.ok("exec", "a", "--", "python3", "-c", "import os, time\n"
                     "if os.fork(): os._exit(0)\n"
                     "os.setsid(); n = os.open('/dev/null', os.O_RDWR); [os.dup2(n, i) for i in range(3)]\n"
                     "time.sleep(1)\n" + PROBE + NETLINK + "open('/home/agent/done', 'w')\n")
        time.sleep(3)
        wait_until(lambda: self.root.run("exec", "a", "--", "pgrep", "python3").code == 1, 20, "the end of the process")
        self.assertEqual(self.shell("a", "ls /home/agent"), "")

    def test_what_the_kernel_charges_itself(self):
        for probe in (UNIX, PIPES, QUEUES):
            self.bounded(probe)

    @needs("own kernel objects")
    def test_files_are_charged(self):
        """720,000 open files would take 320 MiB of kernel memory."""
        self.root.run("exec", "a", "--timeout", "150s", "--", "python3", "-c", PROBE + MAPPED + END, timeout=180)
        self.assertGreaterEqual(self.root.exec_info("a")["end"]["oom_kills"], 1)
        self.assertEqual(self.shell("a", "echo still there"), "still there\n")
