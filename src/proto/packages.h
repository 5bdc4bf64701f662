/*
 * What the daemon and ripcord-packages say to each other: the frames of proto/supervisor.h (its
 * writer and reader, one message a packet, answers carry the question's seq) on one SOCK_SEQPACKET
 * socket, with the types and tags below. The end of that socket is the registry's end: it takes no
 * new request then, finishes what runs for a moment, and exits.
 *
 * Started with: descriptor 3, the control socket; descriptor 4, the configuration
 * (packages/config.h), a sealed memfd; proxy variables in the environment, if any.
 *
 *  registry -> daemon
 *    READY     it serves; SUP_TAG_PID, SUP_TAG_VERSION. The first message, or
 *    FAILED    the error; it ends
 *    RESULT    seq; the error, if one (sup_read_err); where the table says so [+ fd: a sealed
 * memfd that holds a JSON document] EVENT     PACKAGES_TAG_JSON: {"type": "mismatch" | "denied" |
 * "upstream_down" | "upstream_up" | "corrupt", …}; at most 20 a second, what is over that is only
 * counted
 *
 *  daemon -> registry, each answered by RESULT
 *    LISTEN    SUP_TAG_SANDBOX [+ fd: a listening TCP or unix socket, which the registry accepts
 * from]. Again for the same sandbox: the new socket takes the old one's place, counters go on
 *    FORGET    SUP_TAG_SANDBOX: its socket is closed, its connections cut, its counters dropped
 *    STATS     + fd: {"ecosystems": {"pypi": {…}, "npm": {…}}, "sandboxes": {id: {"pypi": {…}, …}},
 *              "upstreams": […], "store": {"files", "bytes", "budget", "evicted"}}. Of the
 * counters, hits and misses are files, bytes_store went to sandboxes, bytes_upstream came from
 * outside (unpacked) LIST      + fd: {"files": [{"digest", "size", "last_used", "file"}], "pages":
 * […]} SHOW      SUP_TAG_PATH: "sha256:<hex>", or "pypi/<name>", "npm/<name>"; + fd VERIFY    +
 * fd: {"checked", "bytes", "bad": [digest, …]}: every file is hashed again, a wrong one removed
 * PRUNE     PACKAGES_TAG_KEEP (bytes to keep at most; absent: the budget), PACKAGES_TAG_AGE
 * (seconds: whatever was not used for so long goes; with KEEP 0 the index pages go too); + fd:
 * {"removed", "bytes"}
 *
 * What a sandbox is told, HOST being what reaches the socket from inside:
 *    PIP_INDEX_URL, UV_DEFAULT_INDEX   http://HOST/pypi/simple/
 *    NPM_CONFIG_REGISTRY, …            http://HOST/npm/
 */
#pragma once

#include "proto/supervisor.h"

enum { PACKAGES_FD_CONTROL = 3, PACKAGES_FD_CONFIG = 4, PACKAGES_CONFIG_MAX = 4 << 20 };

#define PACKAGES_VERSION UINT64_C(0x100000000)

enum packages_msg_type {
    PACKAGES_READY = 128,
    PACKAGES_FAILED,
    PACKAGES_RESULT,
    PACKAGES_EVENT,
    PACKAGES_LISTEN,
    PACKAGES_FORGET,
    PACKAGES_STATS,
    PACKAGES_LIST,
    PACKAGES_SHOW,
    PACKAGES_VERIFY,
    PACKAGES_PRUNE,
};

enum packages_tag {
    PACKAGES_TAG_JSON = 512, /* string */
    PACKAGES_TAG_KEEP,       /* u64 bytes */
    PACKAGES_TAG_AGE,        /* u64 seconds */
};
