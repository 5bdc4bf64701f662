/*
 * An engine's address: what was taken must come back the same from its own text.
 */
#include "dockerapi/endpoint.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size), *shown, *again;
    struct docker_endpoint a = {0}, b = {0};
    struct err err = ERR_INIT;

    MUST(text);
    if (docker_endpoint_parse(text, &a, &err) >= 0) {
        shown = docker_endpoint_text(&a);
        MUST(docker_endpoint_parse(shown, &b, NULL) >= 0);
        again = docker_endpoint_text(&b);
        MUST(strcmp(shown, again) == 0 && a.transport == b.transport && a.port == b.port);
        MUST((a.transport == DOCKER_UNIX) == (a.path != NULL));
        free(shown);
        free(again);
    } else {
        MUST(err.msg && !strpbrk(err.msg, "\n\x1b"));
    }
    docker_endpoint_done(&a);
    docker_endpoint_done(&b);
    err_done(&err);
    free(text);
    return 0;
}
