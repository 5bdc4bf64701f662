/*
 * The trees of the host that a sandbox is built from, as detached mounts: read-only, nosuid, nodev
 * and id-mapped where each needs it. The shim opens them, because it may map ids, and sends them to
 * pid 1 over a socket. Without a range of ids (rootless), pid 1 opens them itself in its own mount
 * namespace.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "lib/base/err.h"
#include "proto/plan.h"

enum shim_layer {
    LAYER_LOWER, /* the image */
    LAYER_DATA,  /* holds root, home and caches/<tool>: each with its upper and work */
    LAYER_USR,   /* -1 unless the image is the host's */
    LAYER_OPT,   /* -1 unless the image is the host's and the host has /opt */
    LAYER_SPLIT, /* the first of PLAN_SPLIT_NAMES; -1 unless it is a folder of the host's */
    LAYER_DEV =
        LAYER_SPLIT +
        PLAN_SPLIT_MAX, /* a tmpfs with device nodes of this sandbox; -1: see setup_dev_nodes() */
    LAYER_PROC,         /* a /proc from outside (own-proc.h); -1: pid 1 mounts it */
    LAYER_BASE,         /* of the package caches; -1: none */
    LAYER_CACHES,       /* the first of plan.caches, in order; -1 unless shared */
    LAYER_MOUNTS = LAYER_CACHES + PLAN_CACHES_MAX, /* the first of plan.mounts, in order */
};

struct layers {
    int fd[LAYER_MOUNTS + PLAN_MOUNTS_MAX];
    size_t n;
};

void layers_init(struct layers *l, const struct plan *plan);
void layers_done(struct layers *l);

/* Creates missing folders below the data folder. The shim calls it first. disk: the mount that
 * replaces that folder, or -1. */
int layers_prepare(const struct plan *plan, int disk, struct err *err);
/* Creates the folder if it is missing, with that mode, and that owner unless id is 0. */
int layers_folder(int dirfd, const char *path, mode_t mode, uint32_t id, struct err *err);

/* userns_fd: the sandbox's user namespace, which gives the id map; -1: no mapping. A data layer
 * that is already open (the mount of a disk image) is only id-mapped. */
int layers_open(struct layers *l, const struct plan *plan, int userns_fd, struct err *err);

/* From the shim to pid 1. */
int layers_send(const struct layers *l, int sock, struct err *err);
int layers_receive(struct layers *l, int sock, struct err *err);
