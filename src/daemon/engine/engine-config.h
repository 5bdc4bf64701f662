/*
 * The configuration of an engine. All strings are borrowed until engine_ops.make has returned: a
 * backend copies what it keeps.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Objects of an earlier system that are to be cleaned up: shell patterns of their names. */
struct engine_legacy_config {
    char *const *containers, *const *networks, *const *volumes;
    const char *label; /* "key" or "key=value" that the containers must carry too; "": none */
};

struct engine_docker_config {
    const char *host;   /* "": found by the environment and the usual sockets */
    const char *prefix; /* for the names of containers, volumes and the network */
    const char *image;  /* the image that `default` stands for */
    const char *label;  /* "key=value" on each object we make, beside our own labels; "": none */
    uint64_t timeout;   /* usec: for one answer of the engine */
    struct engine_legacy_config legacy;
};

/* How ripcord-transfer reaches image registries. */
struct engine_transfer_config {
    uint32_t uid;           /* of ripcord-transfer, when the daemon is root */
    char *const *mirrors;   /* "docker.io=https://…" */
    const char *ca_file;    /* "": the system's */
    const char *proxy;      /* "": none */
    char *const *add_hosts; /* "host" or "host:port": may have private addresses */
    uint64_t add_max;       /* bytes of a file that a Dockerfile ADDs */
};

struct engine_config {
    const char *state_dir, *run_dir; /* absolute; the backend makes its own folders below */
    const char *root_id;             /* 16 hex digits: in the name of every kernel object */
    const char *libexec_dir;         /* the folder of ripcord-shim and the other programs */
    uint64_t journal_budget;         /* bytes per stream */
    uint64_t image_max;              /* bytes of an imported or pulled image */
    uint64_t disk_budget;            /* bytes of a sandbox without a disk limit; 0: any number */
    bool disk_images;                /* hold it with an image where there is no project quota */
    bool cache_required;             /* a package cache that cannot be prepared is an error */
    unsigned at_once;                /* objects that reconcile works on at a time; 0: a few */
    struct engine_docker_config docker;
    struct engine_transfer_config transfer;
};
