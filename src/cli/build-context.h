/*
 * The context of a build as a tar stream: the files below a folder, except those that .dockerignore
 * excludes. Links are sent as links and never followed. A socket, a pipe or a device is an error:
 * skipping it silently would surprise the user later. The Dockerfile is the first entry.
 */
#pragma once

#include "lib/base/cleanup.h"
#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/tar.h"

struct build_context;

/* Name of the Dockerfile in the archive when the file is not in the context folder. */
#define BUILD_CONTEXT_DOCKERFILE ".ripcord.Dockerfile"

/*
 * Opens the folder and reads the Dockerfile. file: path of the Dockerfile, relative to the working
 * folder; "-" is standard input; NULL is "Dockerfile" in the context folder.
 */
int build_context_open(const char *folder, const char *file, struct build_context **ret,
                       struct err *err);
void build_context_free(struct build_context *c); /* NULL is fine */
DEFINE_CLEANUP(struct build_context *, build_context_free);

/* The Dockerfile: its text, its name for messages, and its path in the archive. The context owns
 * them. */
const char *build_context_text(const struct build_context *c, size_t *ret_len);
const char *build_context_label(const struct build_context *c);
const char *build_context_dockerfile(const struct build_context *c);
bool build_context_has_ignore(const struct build_context *c);

/* Chooses whether the next pack sends digests instead of large files (proto/digest-context.h).
 * Files whose digits are keys of `need` are sent whole. `need` is borrowed and may be NULL. */
void build_context_digest_only(struct build_context *c, bool digest_only, const json_t *need);
/* Stores the digests in the state folder, for the next build (digests.h). */
void build_context_remember(struct build_context *c, const char *state);
int build_context_pack(struct build_context *c, tar_write_fn write, void *arg, struct err *err);
