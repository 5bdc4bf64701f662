/*
 * Runs `cat` in a throw-away sandbox, sends it a line, prints its output and exits with its status.
 *
 *     cc -o hello examples/hello.c $(pkg-config --cflags --libs libripcord)
 *     ./hello
 */
#include <ripcord.h>

#include <stdio.h>
#include <string.h>

static const char line[] = "hello from a sandbox\n";

static void on_output(void *userdata, int stream, uint64_t offset, const void *data, size_t len)
{
    (void)userdata;
    (void)offset;
    fwrite(data, 1, len, stream == 1 ? stdout : stderr);
}

/* The end record is JSON text. A real program reads it with its JSON library. */
static void on_end(void *userdata, const char *record)
{
    const char *status = strstr(record, "\"status\":");

    if (status)
        sscanf(status, "\"status\":%d", (int *)userdata);
}

static int fail(struct ripcord_error *e)
{
    fprintf(stderr, "hello: %s\n", ripcord_error_message(e));
    if (ripcord_error_hint(e))
        fprintf(stderr, "hint: %s\n", ripcord_error_hint(e));
    ripcord_error_free(e);
    return 125;
}

static int run(struct ripcord *r)
{
    static const char body[] = "{\"spec\":{},\"exec\":{\"argv\":[\"cat\"],\"stdin\":true}}";
    static const struct ripcord_exec_events events = {.output = on_output, .end = on_end};
    struct ripcord_error *e = NULL;
    struct ripcord_exec *x;
    int status = 125, n = 1;

    if (ripcord_exec_start(r, "/v1/run", body, &x, &e) < 0)
        return fail(e);
    if (ripcord_exec_write(x, line, strlen(line), &e) < 0 || ripcord_exec_close_stdin(x, &e) < 0)
        n = -1;
    while (n > 0)
        n = ripcord_exec_step(x, -1, &events, &status, &e);
    ripcord_exec_free(x);
    return n < 0 ? fail(e) : status;
}

int main(void)
{
    struct ripcord_error *e = NULL;
    struct ripcord *r;
    int status;

    if (ripcord_open(NULL, &r, &e) < 0)
        return fail(e);
    status = run(r);
    ripcord_close(r);
    return status;
}
