#!/usr/bin/env python3
"""Unit tests with one wall less: each must fail, and pass again with the wall (src/lib/base/guard.h). TAP on stdout.

    test_walls.py FOLDER-OF-THE-TESTS [WORD]
"""
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

BOUND = 120  # seconds for a test that ends
HANG = 3  # and for one that then waits for long, or for ever


class Wall(NamedTuple):
    name: str
    test: str  # "PROGRAM#TEST", as in docs/security-tests.md
    first: str = ""  # walls that stand before it
    hangs: bool = False  # without it


WALLS = [
    # A1 the runtime overwritten
    Wall("seals", "test-native-image.c#the_sealed_shim_cannot_be_written"),
    Wall("a copy", "test-native-image.c#the_sealed_shim_cannot_be_written"),
    # A5 /dev/console
    Wall("terminal", "test-os.c#a_terminal_is_not_opened_by_its_name"),
    # A9 cleaning up through links
    Wall("removed links", "test-os.c#rmtree_follows_no_symlink"),
    Wall("removed mounts", "test-os.c#rmtree_crosses_no_mount"),
    # A10 users that wrap
    Wall("strict users", "test-os.c#users_that_do_not_parse_are_refused", first="strict ids"),
    Wall("strict ids", "test-os.c#passwd_is_parsed_strictly"),
    # D5 zombies, D7 output flood
    Wall("reaping", "test-shim.c#orphans_are_reaped"),
    Wall("output budget", "test-shim.c#budget_drops_the_oldest_with_nobody_attached"),
    Wall("back-pressure", "test-shim.c#attached_reader_holds_the_writer_up"),
    # D8 slow clients
    Wall("head size", "test-http.c#head_limit_is_exact"),
    Wall("time limits", "test-http-server.c#slow_head_is_cut"),
    Wall("time limits", "test-http-server.c#write_stall_is_cut", hangs=True),
    # D11 time
    Wall("whole tree", "test-shim.c#timeout_kills_the_whole_tree"),
    # E1 no authentication: not even for those who have a token
    Wall("containers", "test-neighbour.c#containers_are_told_from_the_rest"),
    # E3 smuggling
    Wall("line ends", "test-http.c#head_find_refuses_at_once"),
    Wall("plain lengths", "test-http.c#framing_is_unambiguous"),
    Wall("field names", "test-http.c#framing_is_unambiguous"),
    Wall("given once", "test-http.c#framing_is_unambiguous"),
    Wall("one framing", "test-http.c#framing_is_unambiguous"),
    Wall("chunked alone", "test-http.c#framing_is_unambiguous"),
    Wall("one host", "test-http.c#request_line"),
    Wall("chunk sizes", "test-http.c#chunked_refuses"),
    Wall("chunk ends", "test-http.c#chunked_refuses"),
    Wall("chunk extensions", "test-http.c#chunked_extensions_are_bounded_over_the_body"),
    # E4 decisions on bodies
    Wall("body size", "test-http-server.c#expect_continue_is_refused_over_the_limit"),
    Wall("json keys", "test-json.c#json_refuses_what_is_ambiguous"),
    Wall("json depth", "test-json.c#json_depth_is_limited"),
    Wall("known fields", "test-json.c#json_read_refuses_unknown_fields_and_suggests"),
    # E5 traversal
    Wall("encoded slash", "test-http.c#target_split"),
    Wall("path segments", "test-http.c#target_split"),
    Wall("control bytes", "test-http.c#target_split"),
    # E6 archives
    Wall("beneath", "test-tree.c#hostile_archives_stay_inside"),
    Wall("dotdot", "test-tree.c#names_that_walk_are_refused_as_such"),
    Wall("set-id bits", "test-tree.c#set_id_bits_are_dropped"),
    Wall("header sizes", "test-tar.c#headers_are_bounded_in_size_and_number"),
    Wall("header chains", "test-tar.c#headers_are_bounded_in_size_and_number"),
    # E7 escapes in messages
    Wall("escapes", "test-base.c#text_escape_defuses_terminals"),
    # E8 engines that lie
    Wall("answer size", "test-docker.c#huge_answers_are_refused"),
    Wall("line size", "test-docker.c#stream_refuses_an_endless_line", hangs=True),
    Wall("frames", "test-docker.c#demux_refuses_text"),
    Wall("deadlines", "test-http.c#client_deadline", hangs=True),
    # F9 engine sockets
    Wall("source kinds", "test-native-image.c#mount_sources"),
    Wall("source links", "test-native-image.c#mount_sources"),
    Wall("source names", "test-native-image.c#mount_sources"),
    Wall("source identity", "test-native-image.c#mount_sources_under_another_name"),
]


def outcome(folder, wall, without, bound):
    """'ok', 'not ok', 'skipped', or 'no end'."""
    source, _, test = wall.test.partition("#")
    program = source.removesuffix(".c") + ("" if source == "test-shim.c" else "-walls")  # there the shim has them
    env = {**os.environ, "RIPCORD_WITHOUT": without, "RIPCORD_SHIM": str(folder / "ripcord-shim-walls")}
    try:
        done = subprocess.run([folder / program, test], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=bound, check=False)
    except subprocess.TimeoutExpired:
        return "no end"
    line = re.search(rf"^(ok|not ok) \d+ - {test}( # SKIP.*)?$", done.stdout.decode(errors="replace"), re.M)
    if not line:
        return f"ended with {done.returncode}"
    return "skipped" if line[2] else line[1]


def fault(folder, wall):
    with_it = outcome(folder, wall, wall.first, BOUND)
    if with_it == "skipped":
        return None
    if with_it != "ok":
        return f"{wall.test} with the wall: {with_it}"
    without = outcome(folder, wall, f"{wall.first},{wall.name}", HANG if wall.hangs else BOUND)
    wanted = "no end" if wall.hangs else "not ok"
    return None if without == wanted else f"{wall.test} without the wall: {without}, not '{wanted}'"


def main(argv):
    chosen = [wall for wall in WALLS if len(argv) < 3 or argv[2] in wall.name]
    failed = 0
    for n, wall in enumerate(chosen, 1):
        why = fault(Path(argv[1]), wall)
        failed += why is not None
        print(f"# {why}\nnot ok {n} - {wall.name}" if why else f"ok {n} - {wall.name}", flush=True)
    print(f"1..{len(chosen)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
