/*
 * Network `packages`: attaches a sandbox's listening socket to the packages proxy when its
 * supervisor connects, and detaches it when the supervisor is gone. All on the loop.
 */
#pragma once

struct manager;
struct op;
struct sandbox;

void sandbox_packages_linked(struct sandbox *sb);
void sandbox_packages_unlinked(struct sandbox *sb);
/* Why the package cache does not serve this sandbox; NULL: no problem is known. */
const char *sandbox_packages_trouble(const struct sandbox *sb);
const char *sandbox_packages_route(const struct sandbox *sb); /* NULL: not served now */
/* Emits one event of ripcord-packages (proto/packages.h) as "packages.<type>". */
void sandbox_packages_event(struct manager *m, const char *json);
/* Calls `then` at once, or, where the configuration requires the package cache, when it answers.
 * Fails the operation when it does not answer. */
void sandbox_packages_require(struct op *op, void (*then)(struct op *op));

/* Attaches the packages socket of a build step. fd is borrowed; -1: detaches. */
void sandbox_packages_build(struct manager *m, const char *id, int fd);
