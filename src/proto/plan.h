/*
 * The plan: the daemon's description of the sandbox that a shim builds, as one flat list of fields
 * in a sealed memfd. It comes with the first message to the shim (PLAN). The encoding is that of
 * the messages of supervisor.h (struct sup_field, padded to 8 bytes; unknown tags are skipped),
 * without a message header.
 *
 * The daemon fills a struct plan and calls plan_write(); the shim calls plan_read(). Strings in a
 * struct plan are owned (plan_done). Both sides check everything in the same way: plan_read()
 * accepts every plan that plan_write() accepts.
 *
 * Folders. The engine makes run_dir, data_dir, exec_dir and lower_dir (mode 0700). Below data_dir
 * the shim makes the missing layers of the overlays: root/{upper,work} and home/{upper,work} (an
 * ephemeral sandbox has no home/). So a re-create removes data_dir/root and keeps data_dir/home. In
 * run_dir the shim makes only `shim.sock`. The shim makes exec_dir/<exec id>/ for an exec's
 * journals.
 *
 * Package caches. The base holds only the folder `cache`. It is one more layer below the root, so
 * /cache is a part of the root and needs no mount. A re-create takes over root/upper/cache. A cache
 * that belongs to a single tool is mounted over it, from data_dir/caches/<tool>/{upper,work}.
 *
 * With disk_image the overlays' layers are in that image, which the shim mounts. The shim also
 * removes root/ there if root/ was made for another hash than the plan's.
 *
 * Owners on disk. If id_base is not 0, ids on disk start at 0: the skeleton's /home/agent belongs
 * to 1000:1000, the rest to 0:0. With id_base 0, all files that we make belong to the caller.
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
    PLAN_TAG_NET_SANDBOX,    /* u64 */
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
    PLAN_TAG_DISK_QUOTA,     /* u64: 0 or 1 */
    PLAN_TAG_CONFINED,       /* u64: 0 or 1 */
    PLAN_TAG_OWN_ID,         /* u64 */
    PLAN_TAG_OWN_GROUP,      /* u64 */
    PLAN_TAG_PORTS,          /* u64: first << 16 | last, repeated */
    PLAN_TAG_PACKAGES_PORT,  /* u64 */
    PLAN_TAG_READABLE,       /* string, repeated */
    PLAN_TAG_MAY_CONFINE,    /* u64: 0 or 1 */
};

/* Folders of "/" that are links into /usr on most machines. On the others (Alpine) they are folders
 * with programs and libraries, and belong to the image `host` as /usr does. */
#define PLAN_SPLIT_NAMES "bin", "sbin", "lib", "lib32", "lib64", "libx32"
enum { PLAN_SPLIT_MAX = 6 };

enum plan_image {
    PLAN_IMAGE_HOST,   /* lower_dir is the skeleton, and the machine's /usr and /opt are bound
                          read-only. With `layers` (below lower_dir, the lowest is the skeleton)
                          only /usr is bound, and /opt comes from the image */
    PLAN_IMAGE_ROOTFS, /* lower_dir is a whole root file system, or `layers` make up one */
};

enum plan_network { PLAN_NETWORK_NONE, PLAN_NETWORK_PACKAGES, PLAN_NETWORK_OPEN };

/* The kinds of caches that are more than a folder below /cache. */
enum plan_cache_kind {
    PLAN_CACHE_HIDDEN,   /* an empty folder that cannot be written */
    PLAN_CACHE_PRIVATE,  /* the sandbox's own, without the base */
    PLAN_CACHE_SHARED,   /* `source`, writable */
    PLAN_CACHE_LAYERED,  /* an overlay: the base's folder of the tool, the sandbox's own above it */
    PLAN_CACHE_READONLY, /* as LAYERED, and the upper layer is empty at each start */
    PLAN_CACHE_KINDS
};

enum {
    PLAN_MOUNT_RDONLY = 1 << 0, /* PLAN_TAG_MOUNT flags */
    PLAN_MOUNT_OURS = 1 << 1,
    PLAN_MOUNT_NO_ROOT_SQUASH = 1 << 2,
    PLAN_MOUNTS_MAX = 64,
    PLAN_CACHES_MAX = 16,
    PLAN_LAYERS_MAX =
        100, /* of an image: what fits into one mount option (supervisor/shim/lower-layers.h) */
    PLAN_ID_COUNT = 65536,         /* ids of one sandbox when id_base is not 0 */
    PLAN_AGENT_ID = 1000,          /* the ordinary user inside */
    PLAN_SQUASHED_ID = 0x7ffffffe, /* on disk, in place of root: see struct plan_mount */
    PLAN_CGROUP_MAX = 1024,
    PLAN_SECCOMP_MAX = 4096,   /* instructions: BPF_MAXINSNS */
    PLAN_PACKAGES_PORT = 7417, /* on 127.0.0.1 inside, with `packages` */
    PLAN_PORTS_MAX = 64,       /* ranges of a confined sandbox */
    PLAN_PORTS_SUM_MAX = 1024, /* ports in all of them: each is a Landlock rule */
    PLAN_READABLE_MAX = 512,
};

/* Below data_dir: the only folders that a confined sandbox may write to, besides mounts. `bin` is
 * ours, and first in its PATH. */
#define PLAN_CONFINED_DIR "confined"
#define PLAN_CONFINED_HOME PLAN_CONFINED_DIR "/home"
#define PLAN_CONFINED_TMP PLAN_CONFINED_DIR "/tmp"
#define PLAN_CONFINED_CACHE PLAN_CONFINED_DIR "/cache"
#define PLAN_CONFINED_BIN PLAN_CONFINED_DIR "/bin"

struct plan_mount {
    char *source; /* absolute, without symlinks: opened with RESOLVE_NO_SYMLINKS */
    char *target; /* absolute inside; made when missing */
    bool read_only;
    bool ours; /* a tree of our own making, with the ids of a sandbox on the disk; else its owner is
                  the agent inside */
    /*
     * A writable source of root does not make the agent root on the disk: the agent's files belong
     * to PLAN_SQUASHED_ID there, and root's files to nobody inside. The same holds for the group.
     * No user, service or sandbox has that id: it lies above the ranges for sandboxes (`nobody`
     * would be the user of several services). This switches that off.
     */
    bool no_root_squash;
    uint64_t dev, ino; /* of the source when the daemon checked it; ino 0: not compared */
};

struct plan_cache {
    enum plan_cache_kind kind;
    char *tool;   /* a plain name: the folder of its layers */
    char *target; /* absolute inside */
    char *source; /* absolute: SHARED; else NULL */
};

struct plan_ports {
    uint16_t first, last;
};

struct plan {
    char *sandbox_id; /* 16 hex digits */
    char *root_id;    /* 16 hex digits */
    char *name;       /* also the host name inside */
    char *hash;       /* config hash, or ""; HELLO returns it */

    char *run_dir, *data_dir, *exec_dir, *lower_dir; /* absolute */
    enum plan_image image;
    char **layers; /* names below lower_dir, the topmost first; NULL: lower_dir itself */
    size_t n_layers;
    struct plan_mount *mounts;
    size_t n_mounts;

    uint32_t id_base; /* first host id of the range; 0: rootless, the caller is 1000 inside */
    /* Rootless: first subordinate ids (lib/os/submap.h); 0: without. */
    uint32_t sub_uid, sub_gid;

    uint64_t memory;    /* bytes; 0: no limit, also below */
    uint32_t cpu_milli; /* thousandths of a CPU */
    uint32_t pids;
    uint32_t nofile;
    /* enum plan_limit bits of limits that the user requested: the start fails if one cannot be
     * enforced. READY reports the others as unenforced. */
    uint32_t required;
    /* Sizes of tmpfs; 0: not mounted (/dev/shm: 64 MiB). */
    uint64_t tmp_size, run_size, scratch_size, shm_size;

    char *user;    /* "agent", "1000", "1000:1000" */
    char *workdir; /* absolute inside */
    char **env;    /* the environment of every exec; an exec may add to it */

    uint64_t journal_budget; /* bytes per stream; 0: unlimited */
    bool ephemeral;          /* the sandbox stops when its first exec has ended */
    bool strict;             /* every exec in a Landlock domain of its own */
    bool bare;               /* a build step: nothing is added to the image's own files */
    char *cgroup_parent;     /* folder below each hierarchy's root; NULL: no cgroups are made */
    enum plan_network network;
    char *net_ifname; /* `open`: the host's end of the veth pair (inside: eth0); else NULL */
    uint32_t net_host, net_sandbox; /* IPv4 addresses of the two ends, host byte order: a /31 */
    uint32_t net_mtu;               /* 0: the kernel's default */
    char *resolv_conf;              /* text of /etc/resolv.conf; NULL: the image's file */

    char *cache_base;     /* absolute: holds cache/<tool>, read-only; NULL: no /cache */
    uint32_t cache_owner; /* id inside that owns the caches */
    struct plan_cache *caches;
    size_t n_caches;

    char *disk_image; /* absolute: an ext4 image that replaces data_dir, or NULL */
    bool disk_quota;  /* a project quota limits data_dir */

    void *seccomp;      /* array of struct sock_filter, or NULL */
    size_t seccomp_len; /* bytes */

    /*
     * Without namespaces (supervisor/shim/confined.h). The machine's own files are seen under their
     * own paths, so each mount has its source as its target, and there are no layers and caches.
     * The engine makes the folders above.
     */
    bool confined;
    uint32_t own_id;          /* user and group id of the commands; 0: the shim's */
    uint32_t own_group;       /* a further group, which may pass the folders above their own */
    struct plan_ports *ports; /* that they may listen on and connect to */
    size_t n_ports;
    uint32_t packages_port; /* that they may connect to; 0: none */
    char **readable;        /* absolute paths that they may read and run; may be missing here */

    bool may_confine; /* with namespaces: a refused start names isolation 'confined' as a choice */
};

#define PLAN_INIT                                                                                  \
    {                                                                                              \
        0                                                                                          \
    }

void plan_done(struct plan *p);

/* Checks the plan and writes it to a new sealed memfd (O_CLOEXEC, offset 0), owned by the
 * caller. */
int plan_write(const struct plan *p, int *ret_fd, struct err *err);
/* Reads and checks; the descriptor stays open. *ret is untouched on failure. */
int plan_read(int fd, struct plan *ret, struct err *err);

/* Sends PLAN, the first message to a shim, with the descriptors of enum plan_fd. The shim only
 * keeps the lease (of ids, or of ports) open, and the listener: the package cache's socket of a
 * confined sandbox. */
enum plan_fd { PLAN_FD_PLAN, PLAN_FD_LOG, PLAN_FD_LEASE, PLAN_FD_LISTENER, PLAN_FDS };
int plan_give(int control, const int fds[], size_t n, struct err *err);
/* Waits for PLAN. Returns the number of descriptors (at least PLAN_FD_LOG + 1), or 0 if the daemon
 * closed the socket. */
int plan_take(int control, int fds[static PLAN_FDS], struct err *err);

/* The same in memory, for tests and the fuzzer. */
int plan_encode(const struct plan *p, struct buf *b, struct err *err);
int plan_decode(const void *data, size_t len, struct plan *ret, struct err *err);
