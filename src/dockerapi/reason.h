/*
 * Why an engine refused: finer than our error codes, so that a caller can act on it ("the name is
 * taken", "it is being removed: wait") without looking at words. One table in error-classes.c makes it
 * from status, words and flavour.
 */
#pragma once

enum docker_reason {
    DOCKER_OK = 0,
    DOCKER_OTHER,       /* in no row of the table */
    DOCKER_UNREACHABLE, /* no connection, or it broke off */
    DOCKER_SILENT,      /* the deadline passed */
    DOCKER_BAD_VERSION, /* API version refused */
    DOCKER_NO_CALL,     /* this engine does not have that call */
    DOCKER_BAD_REQUEST, /* malformed or refused value */
    DOCKER_FORBIDDEN,
    DOCKER_MISSING,  /* 404 without a better row */
    DOCKER_CONFLICT, /* 409 without a better row */
    DOCKER_DISK_FULL,
    DOCKER_NO_IMAGE,
    DOCKER_IMAGE_IN_USE,
    DOCKER_NO_CONTAINER,
    DOCKER_NAME_TAKEN, /* container */
    DOCKER_REMOVING,   /* removal in progress: wait until it is gone */
    DOCKER_NOT_RUNNING,
    DOCKER_RUNNING, /* and must not, for this */
    DOCKER_PAUSED,
    DOCKER_NOT_PAUSED,
    DOCKER_BAD_STATE,  /* Podman: some other state */
    DOCKER_NO_PROGRAM, /* the command is not in the image */
    DOCKER_NOT_EXECUTABLE,
    DOCKER_NO_USER,
    DOCKER_NO_RUNTIME,
    DOCKER_NO_INIT,      /* Podman without catatonit */
    DOCKER_NO_EXEC,      /* unknown exec id: forgotten after a restart or the container's end */
    DOCKER_EXEC_STARTED, /* an exec starts once */
    DOCKER_NO_VOLUME,
    DOCKER_VOLUME_IN_USE,
    DOCKER_NO_DRIVER,    /* volume or network plugin */
    DOCKER_MOUNT_FAILED, /* a volume's device or a bind's source */
    DOCKER_NO_QUOTA,     /* size options on a file system without project quota */
    DOCKER_NO_NETWORK,
    DOCKER_NETWORK_EXISTS,
    DOCKER_NETWORK_AMBIGUOUS, /* several of that name: use the id */
    DOCKER_NETWORK_IN_USE,
    DOCKER_NETWORK_CONNECTED, /* already */
    DOCKER_NETWORK_NOT_CONNECTED,
    DOCKER_NETWORK_OVERLAP, /* with another one's subnet */
    DOCKER_NETWORK_POOL,    /* no free subnet */
    DOCKER_NO_PATH,         /* archive: not in the container */
    DOCKER_OUTSIDE,         /* archive: a name that leads out */
    DOCKER_READ_ONLY,
    DOCKER_BUSY, /* an operation of that kind is already running */
    DOCKER_REASON_MAX,
};

const char *docker_reason_name(enum docker_reason r); /* "name_taken" */
