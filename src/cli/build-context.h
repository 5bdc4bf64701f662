/*
 * The context of a build as a tar stream: what lies below a folder, without what .dockerignore
 * leaves out. Links travel as links and are never followed; a socket, a pipe or a device is an
 * error, because a build that misses it silently is worse. The Dockerfile comes first.
 */
#pragma once

#include "lib/base/cleanup.h"
#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/tar.h"

struct build_context;

/* What the Dockerfile is called in a context that does not hold it. */
#define BUILD_CONTEXT_DOCKERFILE ".ripcord.Dockerfile"

/*
 * file: the Dockerfile, by a path as from the working directory, "-" for the standard input; NULL:
 * "Dockerfile" in the folder. Both are opened and the text is read here.
 */
int build_context_open(const char *folder, const char *file, struct build_context **ret,
                       struct err *err);
void build_context_free(struct build_context *c); /* NULL is fine */
DEFINE_CLEANUP(struct build_context *, build_context_free);

/* The Dockerfile: its text, the name for people, and its path in the context. */
const char *build_context_text(const struct build_context *c, size_t *ret_len);
const char *build_context_label(const struct build_context *c);
const char *build_context_dockerfile(const struct build_context *c);
bool build_context_has_ignore(const struct build_context *c);

/* Packed as proto/digest-context.h has it: without the files that are not small, but for those
 * whose digits are keys of `need`, which stays the caller's and may be NULL. */
void build_context_digest_only(struct build_context *c, bool digest_only, const json_t *need);
/* Digests that this takes are kept in the state folder, for the next time (cli/digests.h). */
void build_context_remember(struct build_context *c, const char *state);
int build_context_pack(struct build_context *c, tar_write_fn write, void *arg, struct err *err);
