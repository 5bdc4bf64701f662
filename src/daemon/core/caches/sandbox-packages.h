/*
 * Network `packages`: brings a sandbox's listening socket to the registry's keeper when its
 * supervisor is linked, and takes it back when that has gone.
 */
#pragma once

struct manager;
struct op;
struct sandbox;

void sandbox_packages_linked(struct sandbox *sb);
void sandbox_packages_unlinked(struct sandbox *sb);
/* Why its package registry does not serve; NULL: nothing is known against it. */
const char *sandbox_packages_trouble(const struct sandbox *sb);
const char *sandbox_packages_way(const struct sandbox *sb); /* NULL: it is not served now */
/* One event of the registry (proto/packages.h), as one of ours: "registry.<its type>". */
void sandbox_packages_event(struct manager *m, const char *json);
/* Goes on with `then` at once, or when the registry is there where the configuration requires it;
 * else the operation fails. */
void sandbox_packages_require(struct op *op, void (*then)(struct op *op));

/* A step of a build looks for its packages behind this socket, which is borrowed; -1: no more. */
void sandbox_packages_build(struct manager *m, const char *id, int fd);
