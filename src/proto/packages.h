/*
 * The packages protocol: messages between the daemon and ripcord-packages, on one SOCK_SEQPACKET
 * socket. The frames are those of proto/supervisor.h (its writer and reader, one message per
 * packet, an answer carries the request's seq), with the types and tags below. When the socket
 * ends, ripcord-packages accepts no new request, finishes running requests for a moment, and exits.
 *
 * It starts with descriptor 3: the control socket; descriptor 4: the configuration
 * (packages/config.h), a sealed memfd; and proxy variables in the environment, if any.
 *
 *  ripcord-packages -> daemon
 *    READY     SUP_TAG_PID, SUP_TAG_VERSION: it serves. The first message, unless
 *    FAILED    error: it ends
 *    RESULT    error or nothing (sup_read_err()). "+ fd" below: a sealed memfd with a JSON document
 *    EVENT     PACKAGES_TAG_JSON: {"type": "mismatch" | "denied" | "upstream_down" |
 *              "upstream_up" | "corrupt", …}; at most 20 per second, others are only counted
 *
 *  daemon -> ripcord-packages, each answered by RESULT
 *    LISTEN    SUP_TAG_SANDBOX, with a descriptor: a listening TCP or unix socket to accept from.
 *              A second LISTEN for the same sandbox replaces the socket and keeps the counters.
 *              SUP_TAG_FLAGS, optional: enum packages_listen_flags
 *    FORGET    SUP_TAG_SANDBOX: closes its socket and connections, drops its counters
 *    STATS     + fd: {"ecosystems": {"pypi": {…}, "npm": {…}}, "sandboxes": {id: {"pypi": {…}, …}},
 *              "upstreams": […], "store": {"files", "bytes", "budget", "evicted"}}. The counters
 *              hits and misses are files, bytes_store went to sandboxes, bytes_upstream came from
 *              upstream (unpacked)
 *    LIST      + fd: {"files": [{"digest", "size", "last_used", "file"}], "pages": […]}
 *    SHOW      SUP_TAG_PATH: "sha256:<hex>", "pypi/<name>" or "npm/<name>"; + fd
 *    VERIFY    + fd: {"checked", "bytes", "bad": [digest, …]}: hashes every file again and removes
 *              wrong ones
 *    PRUNE     PACKAGES_TAG_KEEP: bytes to keep at most (absent: the budget), PACKAGES_TAG_AGE:
 *              removes files that were not used for this number of seconds; KEEP 0 also removes
 *              the index pages; + fd: {"removed", "bytes"}
 *
 * The variables of a sandbox, where HOST reaches the socket from inside:
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

enum packages_listen_flags {
    PACKAGES_LISTEN_OWNER = 1 << 0, /* serve connections of the socket's owner only: others on this
                                       machine can reach the port */
};

enum packages_tag {
    PACKAGES_TAG_JSON = 512, /* string */
    PACKAGES_TAG_KEEP,       /* u64 bytes */
    PACKAGES_TAG_AGE,        /* u64 seconds */
};
