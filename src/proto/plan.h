/*
 * The plan: what the daemon wants the shim to build, as one flat list of fields in a sealed memfd
 * that comes with the first message on the shim's line (PLAN). Same encoding as the messages of
 * supervisor.h (struct sup_field, padded to 8 bytes; unknown tags are skipped), without a message
 * header.
 *
 * The daemon fills a struct plan and calls plan_write(); the shim calls plan_read(). Strings in a
 * struct plan are owned (plan_done). Everything is checked on both sides: a plan that plan_write()
 * accepts is one that plan_read() accepts.
 *
 * Folders. The engine makes run_dir, data_dir, exec_dir and lower_dir (0700, its own); the shim
 * makes what it needs below data_dir when missing: root/{upper,work} and home/{upper,work}, the
 * overlays' own layers (an ephemeral sandbox has no home/). So a re-create removes data_dir/root
 * and keeps data_dir/home. In run_dir the shim makes only `shim.sock`. An exec's journals go to
 * exec_dir/<exec id>/, made by the shim.
 *
 * Package caches. The base, which holds nothing but `cache`, is one more layer below the root, so
 * /cache is a part of the root and costs no mount; a re-create takes root/upper/cache over. What a
 * single tool has otherwise lies over it, in data_dir/caches/<tool>/{upper,work}.
 *
 * With disk_image the overlays' layers lie in that image instead, which the shim mounts for
 * itself; it also removes root/ there when the plan's hash is not the one that root/ was made for.
 *
 * Ownership on disk is 0-based when id_base is not 0 (the skeleton's /home/agent belongs to
 * 1000:1000, the rest to 0:0); with id_base 0 what we make belongs to the caller's own id.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/limits.h"
#include "proto/supervisor.h"

enum plan_tag {
    PLAN_TAG_SANDBOX = SUP_TAG_PLAN_FIRST, /* string */
    PLAN_TAG_ROOT,                         /* string */
    PLAN_TAG_NAME,                         /* string */
    PLAN_TAG_HASH,                         /* string */
    PLAN_TAG_RUN_DIR,                      /* string */
    PLAN_TAG_DATA_DIR,                     /* string */
    PLAN_TAG_EXEC_DIR,                     /* string */
    PLAN_TAG_LOWER_DIR,                    /* string */
    PLAN_TAG_IMAGE,                        /* u64: enum plan_image */
    PLAN_TAG_MOUNT,          /* u64: flags; opens a mount, the next four belong to it */
    PLAN_TAG_MOUNT_SOURCE,   /* string */
    PLAN_TAG_MOUNT_TARGET,   /* string */
    PLAN_TAG_MOUNT_DEV,      /* u64 */
    PLAN_TAG_MOUNT_INO,      /* u64 */
    PLAN_TAG_ID_BASE,        /* u64 */
    PLAN_TAG_MEMORY,         /* u64 */
    PLAN_TAG_CPU_MILLI,      /* u64 */
    PLAN_TAG_PIDS,           /* u64 */
    PLAN_TAG_NOFILE,         /* u64 */
    PLAN_TAG_TMP_SIZE,       /* u64 */
    PLAN_TAG_RUN_SIZE,       /* u64 */
    PLAN_TAG_SCRATCH_SIZE,   /* u64 */
    PLAN_TAG_SHM_SIZE,       /* u64 */
    PLAN_TAG_USER,           /* string */
    PLAN_TAG_WORKDIR,        /* string */
    PLAN_TAG_ENV,            /* string K=V, repeated */
    PLAN_TAG_JOURNAL_BUDGET, /* u64 */
    PLAN_TAG_EPHEMERAL,      /* u64: 0 or 1 */
    PLAN_TAG_CGROUP_PARENT,  /* string */
    PLAN_TAG_NETWORK,        /* u64: enum plan_network */
    PLAN_TAG_SECCOMP,        /* bytes: struct sock_filter[] */
    PLAN_TAG_REQUIRED,       /* u64: enum limit_bit bits */
    PLAN_TAG_NET_IFNAME,     /* string */
    PLAN_TAG_NET_HOST,       /* u64 */
    PLAN_TAG_NET_BOX,        /* u64 */
    PLAN_TAG_NET_MTU,        /* u64 */
    PLAN_TAG_RESOLV_CONF,    /* string */
    PLAN_TAG_SUB_UID,        /* u64 */
    PLAN_TAG_SUB_GID,        /* u64 */
    PLAN_TAG_DISK_IMAGE,     /* string */
    PLAN_TAG_CACHE_BASE,     /* string */
    PLAN_TAG_CACHE_OWNER,    /* u64 */
    PLAN_TAG_CACHE,          /* u64: enum plan_cache_kind; opens a cache, the next three are its */
    PLAN_TAG_CACHE_TOOL,     /* string */
    PLAN_TAG_CACHE_TARGET,   /* string */
    PLAN_TAG_CACHE_SOURCE,   /* string */
    PLAN_TAG_LAYER,          /* string, repeated */
    PLAN_TAG_STRICT,         /* u64: 0 or 1 */
    PLAN_TAG_BARE,           /* u64: 0 or 1 */
};

enum plan_image {
    PLAN_IMAGE_HOST,   /* lower_dir is the skeleton, and the machine's /usr and /opt are bound
                          read-only; or it holds `layers`, of which the lowest is the skeleton, and
                          /usr is bound: /opt is then the image's own */
    PLAN_IMAGE_ROOTFS, /* lower_dir is a whole root file system, or holds `layers`, which are one */
};

enum plan_network { PLAN_NETWORK_NONE, PLAN_NETWORK_PACKAGES, PLAN_NETWORK_OPEN };

/* What a tool's cache is when it is not just a folder below /cache. */
enum plan_cache_kind {
    PLAN_CACHE_HIDDEN,   /* nothing: an empty folder that cannot be written */
    PLAN_CACHE_PRIVATE,  /* the sandbox's own, without the base */
    PLAN_CACHE_SHARED,   /* `source`, for writing */
    PLAN_CACHE_LAYERED,  /* the base's folder of that tool below, the sandbox's own above */
    PLAN_CACHE_READONLY, /* the same, and what is above is empty at each start */
    PLAN_CACHE_KINDS
};

enum {
    PLAN_MOUNT_RDONLY = 1 << 0, /* PLAN_TAG_MOUNT flags */
    PLAN_MOUNT_OURS = 1 << 1,
    PLAN_MOUNTS_MAX = 64,
    PLAN_CACHES_MAX = 16,
    PLAN_LAYERS_MAX =
        100, /* of an image: what fits into one mount option (supervisor/shim/lower-layers.h) */
    PLAN_ENV_MAX = 1024,
    PLAN_ID_COUNT = 65536,     /* ids of one sandbox when id_base is not 0 */
    PLAN_AGENT_ID = 1000,      /* the ordinary user inside */
    PLAN_SECCOMP_MAX = 4096,   /* instructions: BPF_MAXINSNS */
    PLAN_PACKAGES_PORT = 7417, /* on 127.0.0.1 inside, with `packages` */
};

struct plan_mount {
    char *source; /* absolute, without symlinks: opened with RESOLVE_NO_SYMLINKS */
    char *target; /* absolute inside; made when missing */
    bool read_only;
    bool ours; /* a tree of our own making, with the ids of a sandbox on the disk; else its owner is
                  the agent inside */
    uint64_t dev, ino; /* of the source when the daemon checked it; ino 0: not told */
};

struct plan_cache {
    enum plan_cache_kind kind;
    char *tool;   /* a plain name: the folder of its layers */
    char *target; /* absolute inside */
    char *source; /* absolute: SHARED; else NULL */
};

struct plan {
    char *sandbox_id; /* 16 hex digits */
    char *root_id;    /* 16 hex digits */
    char *name;       /* also the host name inside */
    char *hash;       /* config hash, "" when none; told back in HELLO */

    char *run_dir, *data_dir, *exec_dir, *lower_dir; /* absolute */
    enum plan_image image;
    char **layers; /* names below lower_dir, the topmost first; NULL: lower_dir itself */
    size_t n_layers;
    struct plan_mount *mounts;
    size_t n_mounts;

    uint32_t id_base; /* first host id of the range; 0: rootless, own uid is 1000 inside */
    uint32_t sub_uid,
        sub_gid; /* rootless, with others' ids from here (lib/os/submap.h); 0: without */

    uint64_t memory;    /* bytes; 0: no limit, also below */
    uint32_t cpu_milli; /* thousandths of a CPU */
    uint32_t pids;
    uint32_t nofile;
    uint32_t required; /* enum limit_bit bits that the user asked for: refused when not possible;
                          the others are told as unenforced in READY */
    uint64_t tmp_size, run_size, scratch_size, shm_size; /* tmpfs; 0: that one is not mounted
                                                            (/dev/shm: 64 MiB) */

    char *user;    /* "agent", "1000", "1000:1000" */
    char *workdir; /* absolute inside */
    char **env;    /* the whole environment of an exec but for its own additions */

    uint64_t journal_budget; /* bytes per stream; 0: unlimited */
    bool ephemeral;          /* ends by itself when its first exec has ended */
    bool strict;             /* every exec in a Landlock domain of its own */
    bool bare;               /* a step of a build: nothing is added to the image's own files */
    char *cgroup_parent;     /* first folder below each hierarchy's root; NULL: "ripcord" */
    enum plan_network network;
    char *net_ifname; /* with `open`, else NULL: the host's end of the veth pair; inside it is eth0
                       */
    uint32_t net_host, net_sandbox; /* IPv4 addresses of the two ends, host byte order: a /31 */
    uint32_t net_mtu;               /* 0: the kernel's default */
    char *resolv_conf;              /* text of /etc/resolv.conf; NULL: as the image has it */

    char *cache_base;     /* absolute: holds cache/<tool>, only ever read; NULL: no /cache */
    uint32_t cache_owner; /* id inside of whose the caches are */
    struct plan_cache *caches;
    size_t n_caches;

    char *disk_image; /* absolute: an ext4 image that takes the place of data_dir, or NULL */

    void *seccomp;      /* array of struct sock_filter, or NULL */
    size_t seccomp_len; /* bytes */
};

#define PLAN_INIT                                                                                  \
    {                                                                                              \
        0                                                                                          \
    }

void plan_done(struct plan *p);

/* Checks the plan and puts it into a new sealed memfd (O_CLOEXEC, offset 0), owned by the caller.
 */
int plan_write(const struct plan *p, int *ret_fd, struct err *err);
/* Reads and checks; the descriptor stays open. *ret is untouched on failure. */
int plan_read(int fd, struct plan *ret, struct err *err);

/* The first message on the line of a shim, with the descriptors of enum plan_fd. A lease is only
 * held: it lies open in the shim. */
enum plan_fd { PLAN_FD_PLAN, PLAN_FD_LOG, PLAN_FD_LEASE, PLAN_FDS };
int plan_give(int control, const int fds[], size_t n, struct err *err);
/* Waits for it. 0: the line has ended instead; else how many came, at least PLAN_FD_LOG. */
int plan_take(int control, int fds[static PLAN_FDS], struct err *err);

/* The same on memory: for tests and the fuzzer. */
int plan_encode(const struct plan *p, struct buf *b, struct err *err);
int plan_decode(const void *data, size_t len, struct plan *ret, struct err *err);
