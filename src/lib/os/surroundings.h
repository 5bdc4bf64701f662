/*
 * What surrounds this process and may forbid what a sandbox is made of: a container, a seccomp
 * filter, an AppArmor profile, settings of the kernel. Nobody decides by it whether to try
 * something: it explains a refusal, and names the one change that helps here.
 */
#pragma once

#include <stdbool.h>

enum container_kind {
    CONTAINER_NONE,
    CONTAINER_DOCKER,
    CONTAINER_PODMAN,
    CONTAINER_KUBERNETES,
    CONTAINER_OTHER,
};

enum { SURROUNDINGS_NAME_MAX = 128, SURROUNDINGS_FIX_MAX = 1024 };

struct surroundings {
    enum container_kind container;
    bool root;          /* our uid is 0 */
    bool seccomp;       /* a filter restricts our system calls */
    bool masked_proc;   /* parts of /proc are covered, or /proc is read-only */
    bool cgroup2;       /* it is mounted at /sys/fs/cgroup */
    bool userns_locked; /* AppArmor restricts user namespaces of programs without a profile */
    bool userns_off;    /* kernel.unprivileged_userns_clone is 0 */
    char apparmor[SURROUNDINGS_NAME_MAX];      /* the profile that confines us; "": none */
    char no_namespaces[SURROUNDINGS_NAME_MAX]; /* a sysctl user.max_* that is 0; "": none */
};

void surroundings_look(struct surroundings *ret);
/* The same below a folder that stands for the machine's root; for tests. */
void surroundings_look_at(int rootfd, struct surroundings *ret);

/* Only masked_proc. */
bool surroundings_proc_is_masked(void);

/* What a start was refused; bits. */
enum surroundings_need {
    NEED_NAMESPACES = 1 << 0, /* the system calls that make them, and mount in them */
    NEED_PROC = 1 << 1,       /* a new /proc */
    NEED_UPPER = 1 << 2,      /* a file system that can hold an overlay's upper layer */
    NEED_NETWORK = 1 << 3,    /* to make interfaces and firewall rules */
    NEED_CGROUPS = 1 << 4,    /* to write cgroups */
    NEED_DEVICES = 1 << 5,    /* loop devices */
    NEED_PROFILE = 1 << 6,    /* what a security module forbids */
};

/*
 * An instruction that gives what is missing: the options of the container, a sysctl, a profile. In
 * a container one text holds all options of `needs`, also those for what is found to be in the way
 * later. state_dir: see NEED_UPPER; may be NULL. Never NULL: *ret is empty if nothing is known.
 */
void surroundings_fix(const struct surroundings *s, unsigned needs, const char *state_dir,
                      char ret[static SURROUNDINGS_FIX_MAX]);

/* The name of the file system that holds this folder if an overlay cannot have its upper layer
 * there ("overlay", "NFS"); else NULL. */
const char *surroundings_no_upper(const char *path);
