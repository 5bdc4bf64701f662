#!/usr/bin/env python3
"""Unit tests with one guard less: each must fail, and pass again with the guard (src/lib/base/guard.h). TAP on stdout.

    test_guards.py FOLDER-OF-THE-TESTS [WORD]
"""
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

BOUND = 120  # seconds for a test that ends
HANG = 3  # seconds for a test that hangs without its guard


class Guard(NamedTuple):
    name: str
    test: str  # "PROGRAM#TEST", as in docs/security-tests.md
    first: str = ""  # guards that stand before it
    hangs: bool = False  # without it


GUARDS = [
    # A1 the runtime overwritten
    Guard("seals", "test-native-image.c#the_sealed_shim_cannot_be_written"),
    Guard("a copy", "test-native-image.c#the_sealed_shim_cannot_be_written"),
    # A5 /dev/console
    Guard("terminal", "test-os.c#a_terminal_is_not_opened_by_its_name"),
    # A9 cleaning up through links
    Guard("removed links", "test-os.c#rmtree_follows_no_symlink"),
    Guard("removed mounts", "test-os.c#rmtree_crosses_no_mount"),
    # A10 users that wrap
    Guard("strict users", "test-os.c#users_that_do_not_parse_are_refused", first="strict ids"),
    Guard("strict ids", "test-os.c#passwd_is_parsed_strictly"),
    # D5 zombies, D7 output flood
    Guard("reaping", "test-shim.c#orphans_are_reaped"),
    Guard("output budget", "test-shim.c#budget_drops_the_oldest_without_a_reader"),
    Guard("back-pressure", "test-shim.c#attached_reader_holds_the_writer_up"),
    # D8 slow clients
    Guard("head size", "test-http.c#head_limit_is_exact"),
    Guard("time limits", "test-http-server.c#slow_head_is_cut"),
    Guard("time limits", "test-http-server.c#write_stall_is_cut", hangs=True),
    # D11 time
    Guard("whole tree", "test-shim.c#timeout_kills_the_whole_tree"),
    # E1 no authentication: not even for those who have a token
    Guard("containers", "test-container-peer.c#containers_are_distinguished_from_the_rest"),
    # E2 browsers: rebinding, requests of other pages, tickets
    Guard("host", "test-auth.c#rebound_names_have_no_session"),
    Guard("origin", "test-auth.c#another_page_cannot_read"),
    Guard("origin", "test-auth.c#a_socket_of_another_page"),
    Guard("fetch site", "test-auth.c#another_port_is_another_page"),
    Guard("cookie origin", "test-auth.c#another_page_cannot_change_anything"),
    Guard("cookie origin", "test-auth.c#a_socket_of_another_page"),
    Guard("session time", "test-web-access.c#a_session_has_a_time"),
    Guard("session end", "test-auth.c#a_session_ends"),
    Guard("ticket once", "test-auth.c#a_ticket_opens_one_socket"),
    Guard("ticket time", "test-web-access.c#a_ticket_has_a_time"),
    Guard("ticket path", "test-auth.c#a_ticket_is_for_one_path"),
    Guard("ticket for WebSockets", "test-auth.c#a_ticket_is_for_sockets"),
    Guard("ports by token", "test-web-access.c#ports_are_not_for_pages"),
    # E3 smuggling
    Guard("line ends", "test-http.c#head_find_refuses_at_once"),
    Guard("plain lengths", "test-http.c#framing_is_unambiguous"),
    Guard("field names", "test-http.c#framing_is_unambiguous"),
    Guard("given once", "test-http.c#framing_is_unambiguous"),
    Guard("one framing", "test-http.c#framing_is_unambiguous"),
    Guard("chunked alone", "test-http.c#framing_is_unambiguous"),
    Guard("one host", "test-http.c#request_line"),
    Guard("chunk sizes", "test-http.c#chunked_refuses"),
    Guard("chunk ends", "test-http.c#chunked_refuses"),
    Guard("chunk extensions", "test-http.c#chunked_extensions_are_bounded_over_the_body"),
    # E15 WebSocket frames
    Guard("websocket masks", "test-websocket.c#clients_mask_and_servers_do_not"),
    Guard("websocket sizes", "test-websocket.c#a_message_has_a_limit_over_its_fragments"),
    Guard("websocket control frames", "test-websocket.c#control_frames_are_whole"),
    Guard("websocket accept", "test-websocket.c#a_client_checks_that_the_answer_is_to_its_request"),
    # E4 decisions on bodies
    # E17 the port proxy
    Guard("port fields", "test-port-message.c#fields_of_an_answer"),
    Guard("port fields", "test-port-message.c#a_service_does_not_get_what_is_ours"),
    Guard("port cookie inside", "test-port-message.c#our_cookie_stays_outside"),
    Guard("port cookie outside", "test-port-message.c#a_service_does_not_set_our_cookie"),
    Guard("port cookie domain", "test-port-message.c#cookies_are_for_their_own_host"),
    Guard("port location", "test-port-message.c#locations"),
    Guard("link signature", "test-port-link.c#a_link_that_was_changed_is_not_ours"),
    Guard("link expiry", "test-port-link.c#a_link_expires"),
    Guard("body size", "test-http-server.c#expect_continue_is_refused_over_the_limit"),
    Guard("json keys", "test-json.c#json_refuses_what_is_ambiguous"),
    Guard("json depth", "test-json.c#json_depth_is_limited"),
    Guard("json values", "test-json.c#json_values_are_limited"),
    Guard("known fields", "test-json.c#json_read_refuses_unknown_fields_and_suggests"),
    # E5 traversal
    Guard("encoded slash", "test-http.c#target_split"),
    Guard("path segments", "test-http.c#target_split"),
    Guard("control bytes", "test-http.c#target_split"),
    # E6 archives
    Guard("beneath", "test-tree.c#hostile_archives_stay_inside"),
    Guard("dotdot", "test-tree.c#names_that_walk_are_refused_as_such"),
    Guard("links of the archive", "test-tree.c#a_link_is_followed_but_not_one_of_the_archive"),
    Guard("set-id bits", "test-tree.c#set_id_bits_are_dropped"),
    Guard("header sizes", "test-tar.c#headers_are_bounded_in_size_and_number"),
    Guard("header chains", "test-tar.c#headers_are_bounded_in_size_and_number"),
    # E7 escapes in messages
    Guard("escapes", "test-base.c#text_escape_defuses_terminals"),
    # E8 engines that lie
    Guard("answer size", "test-docker.c#huge_answers_are_refused"),
    Guard("line size", "test-docker.c#stream_refuses_an_endless_line", hangs=True),
    Guard("frames", "test-docker.c#demux_refuses_text"),
    Guard("deadlines", "test-http.c#client_deadline", hangs=True),
    # E9 links in the place of a destination
    Guard("destination links", "test-tree.c#a_link_in_the_place_of_the_destination_is_not_followed"),
    # E10 events that look like ours
    Guard("own events", "test-session.c#objects_of_our_types_are_wrapped"),
    # F9 engine sockets
    Guard("source kinds", "test-native-image.c#mount_sources"),
    Guard("source links", "test-native-image.c#mount_sources"),
    Guard("source names", "test-native-image.c#mount_sources"),
    Guard("source identity", "test-native-image.c#mount_sources_under_another_name"),
]


def outcome(folder, guard, without, bound):
    """'ok', 'not ok', 'skipped', or 'no end'."""
    source, _, test = guard.test.partition("#")
    program = source.removesuffix(".c") + ("" if source == "test-shim.c" else "-guards")  # there the shim has them
    env = {**os.environ, "RIPCORD_WITHOUT": without, "RIPCORD_SHIM": str(folder / "ripcord-shim-guards")}
    try:
        done = subprocess.run([folder / program, test], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=bound, check=False)
    except subprocess.TimeoutExpired:
        return "no end"
    line = re.search(rf"^(ok|not ok) \d+ - {test}( # SKIP.*)?$", done.stdout.decode(errors="replace"), re.M)
    if not line:
        return f"ended with {done.returncode}"
    return "skipped" if line[2] else line[1]


def fault(folder, guard):
    with_it = outcome(folder, guard, guard.first, BOUND)
    if with_it == "skipped":
        return None
    if with_it != "ok":
        return f"{guard.test} with the guard: {with_it}"
    without = outcome(folder, guard, f"{guard.first},{guard.name}", HANG if guard.hangs else BOUND)
    wanted = "no end" if guard.hangs else "not ok"
    return None if without == wanted else f"{guard.test} without the guard: {without}, not '{wanted}'"


def main(argv):
    chosen = [guard for guard in GUARDS if len(argv) < 3 or argv[2] in guard.name]
    failed = 0
    for n, guard in enumerate(chosen, 1):
        why = fault(Path(argv[1]), guard)
        failed += why is not None
        print(f"# {why}\nnot ok {n} - {guard.name}" if why else f"ok {n} - {guard.name}", flush=True)
    print(f"1..{len(chosen)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
