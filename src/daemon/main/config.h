/*
 * The daemon's configuration: one table of keys in config.c. Each row has the key's type, default
 * and description; `ripcordd --help-config` prints them.
 *
 * The file is YAML: scalars, lists of scalars, and one level of grouping (`defaults: {memory: 4G}`
 * is the key defaults.memory). Unknown and repeated keys, anchors, tags and further documents are
 * errors that name the line.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/engine/sandbox-spec.h"
#include "lib/base/json.h"

struct daemon_config {
    char *engine;
    uint64_t memory, tmp, run, scratch, idle_stop, max_life, rm_after;
    uint32_t cpus, pids, nofile;
    char *network, *cache, *user, *workdir;
    char **mount_roots;
    uint64_t journal_sandbox_budget, journal_keep;
    uint64_t journal_budget, stop_grace, body_max, disk_floor, disk_budget;
    char *http_listen, **http_hosts;
    bool http_remote;
    uint32_t connections, events_keep, history_keep;
    char *docker_host, *docker_prefix, *docker_image, *docker_label;
    uint64_t reconcile_interval;
    uint32_t reconcile_native, reconcile_docker;
    char **legacy_containers, **legacy_networks, **legacy_volumes, *legacy_label;
    uint64_t docker_timeout;
    bool cache_required, disk_images;
    char *packages_pypi, *packages_npm, *packages_upstreams, *packages_ca_file, *packages_proxy;
    char *packages_offline;
    char **packages_deny;
    uint64_t packages_min_age, packages_metadata_life, packages_budget;
    uint64_t build_mounts_budget, image_max;
    uint32_t packages_uid, transfer_uid;
    char **transfer_mirrors, *transfer_ca_file, *transfer_proxy, **transfer_add_hosts;
    uint64_t transfer_add_max;
    bool packages_private;
    char *log_level;
    bool log_json;
    char **sources;  /* one per key: "default", or the file and line */
    char **warnings; /* one per deprecated key in the file; the daemon logs them */
};

/* Loads the defaults, then the file at `path`. A file that does not exist changes nothing. */
int config_load(struct daemon_config *ret, const char *path, struct err *err);
void config_done(struct daemon_config *c);
#define _cleanup_config_ __attribute__((cleanup(config_done)))

/* {"<key>":{"value":…,"source":"…"}} */
json_t *config_to_json(const struct daemon_config *c);
/* Prints YAML, with the source of each value as a comment. */
void config_print(const struct daemon_config *c, FILE *f);
/* Prints every key with its default and description. */
void config_help(FILE *f);

/* The spec of a sandbox whose request sets no field. */
int config_spec(const struct daemon_config *c, struct sandbox_spec *ret, struct err *err);
