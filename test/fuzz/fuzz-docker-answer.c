/*
 * What an engine says when it refuses, and its events. The first byte chooses flavour, status and
 * kind of request. Whatever the body is: an error with a code, one printable line of words, no more
 * than a few KiB.
 */
#include "dockerapi/error-classes.h"
#include "dockerapi/events.h"
#include "fuzz.h"

static const char *const paths[] = {
    "/containers/x/start",
    "/containers/x/archive?path=/",
    "/exec/x/start",
    "/images/x/json",
    "/volumes/x",
    "/networks/x",
    "/info",
    "/containers/create?name=x",
};
static const int statuses[] = {400, 403, 404, 409, 500, 503, 301, 200};

static void check_refusal(uint8_t choice, const char *body, size_t len)
{
    struct docker_answer a = {
        .flavour = choice & 1 ? DOCKER_FLAVOUR_PODMAN : DOCKER_FLAVOUR_DOCKER,
        .path = paths[choice >> 1 & 7],
        .status = statuses[choice >> 4 & 7],
        .body = body,
        .len = len,
    };
    enum docker_reason reason = DOCKER_OK;
    struct err err = ERR_INIT;

    MUST(docker_classify(&a, &reason, &err) < 0);
    MUST(reason != DOCKER_OK && reason < DOCKER_REASON_MAX && err.code != ERR_NONE);
    MUST(err.msg && strlen(err.msg) < 8192 && !strpbrk(err.msg, "\n\r\x1b\x7f"));
    err_done(&err);
}

static void check_event(const char *body, size_t len)
{
    struct docker_event e;
    json_t *doc = NULL;

    if (json_parse("event", body, len, &doc, NULL) < 0)
        return;
    docker_event_decode(doc, &e);
    MUST(e.id && e.name && e.exit_code >= -1 && e.exit_code <= 255);
    docker_event_label(&e, "ripcord.root");
    docker_event_done(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *body;

    if (size == 0)
        return 0;
    body = fuzz_copy(data + 1, size - 1);
    check_refusal(data[0], body, size - 1);
    check_event(body, size - 1);
    free(body);
    return 0;
}
