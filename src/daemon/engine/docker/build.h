/*
 * Image builds with the engine's own builder: BuildKit of Docker (without a session) or Podman's
 * builder. The lines of the answer become the events of daemon/engine/build.h.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/time.h"

struct build;
struct build_lines;
struct build_request;
struct engine;

int docker_build(struct engine *e, const struct build_request *req, struct build *b,
                 const struct deadline *by, char **ret, struct err *err);

/* Parsers of the answer: build-buildkit.c and build-podman.c. *_take() parses one line. */
struct buildkit;
struct buildkit *buildkit_new(struct build *b, const struct build_lines *lines);
void buildkit_free(struct buildkit *k);
int buildkit_take(struct buildkit *k, const json_t *line, struct err *err);

struct podman_log;
struct podman_log *podman_log_new(struct build *b, const struct build_lines *lines);
void podman_log_free(struct podman_log *p);
void podman_log_take(struct podman_log *p, const char *text, size_t len);
/* The build has ended; `words` is the error message, or NULL after a success. */
void podman_log_end(struct podman_log *p, const char *words);
