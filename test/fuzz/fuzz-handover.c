/*
 * A handover as a supervisor reads it: each part lies inside the handover and has a valid name, and
 * Linux could run the command.
 */
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "lib/base/command-size.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "proto/handover.h"

static void check_strings(const struct handover *h, char *const *v, size_t n)
{
    const char *from = h->map, *to = from + h->size;

    for (size_t i = 0; i < n; i++)
        MUST(v[i] >= from && v[i] + strlen(v[i]) < to && strlen(v[i]) < COMMAND_STRING_MAX);
    MUST(!v[n]);
}

static void check_command(const struct handover *h)
{
    check_strings(h, h->argv, h->n_argv);
    check_strings(h, h->env, h->n_env);
    for (char **v = h->env; *v; v++)
        MUST(parse_env(*v, NULL) >= 0);
    MUST(command_size(h->argv) + command_size(h->env) <= COMMAND_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct handover h = {0};
    int fd = -1;

    if (memfd_sealed("fuzz", data, size, &fd, NULL) < 0)
        return 0;
    if (handover_read(fd, &h, NULL) >= 0) {
        const char *from = h.map, *to = from + h.size;

        MUST(h.n_secrets <= HANDOVER_SECRETS_MAX);
        MUST(!h.argv == !(h.n_argv + h.n_env));
        if (h.argv)
            check_command(&h);
        MUST(!h.input || (h.input >= from && h.input + h.input_len <= to));
        for (size_t i = 0; i < h.n_secrets; i++) {
            MUST(parse_secret_name(h.secrets[i].name, NULL) >= 0);
            MUST(h.secrets[i].value >= from && h.secrets[i].value + h.secrets[i].len <= to);
            MUST(h.secrets[i].mode <= 0777);
            MUST(!h.secrets[i].target || (h.secrets[i].target[0] == '/' &&
                                          h.secrets[i].target + strlen(h.secrets[i].target) < to));
        }
        handover_done(&h);
    }
    close(fd);
    return 0;
}
