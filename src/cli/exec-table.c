#include "cli/exec-table.h"

#include <string.h>

#include "cli/output.h"
#include "cli/state.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { COMMAND_MAX = 60 };

static char *exec_table_command_of(const json_t *exec)
{
    _cleanup_strv_ char **words = NULL;
    const json_t *arg;
    _cleanup_free_ char *line = NULL;
    size_t i;

    json_array_foreach (json_object_get(exec, "argv"), i, arg)
        strv_add(&words, json_string_value(arg) ? json_string_value(arg) : "?");
    line = strv_join(words, " ");
    if (strlen(line) <= COMMAND_MAX)
        return TAKE_PTR(line);
    i = COMMAND_MAX - 1;
    while (i && ((unsigned char)line[i] & 0xc0) == 0x80)
        i--; /* do not cut a character */
    return xasprintf("%.*s…", (int)i, line);
}

static void exec_table_add_ms(struct table *t, const json_t *of, const char *key)
{
    char text[FORMAT_MAX];

    table_add(t, json_is_object(of) ? format_duration(json_number_of(of, key) * USEC_PER_MSEC, text)
                                    : NULL);
}

static void exec_table_add_size(struct table *t, const json_t *of, const char *key,
                                const char *more)
{
    uint64_t size = json_number_of(of, key) + (more ? json_number_of(of, more) : 0);
    char text[FORMAT_MAX];

    table_add(t, json_is_object(of) ? format_size(size, text) : NULL);
}

static void exec_table_add_row(struct table *t, const json_t *x, bool all, bool named)
{
    _cleanup_free_ char *command = exec_table_command_of(x);
    const json_t *ended = json_object_get(x, "end");
    char end[STATE_END_MAX], age[AGE_MAX], time[FORMAT_MAX];

    if (named)
        table_add(t, json_text_of(x, "sandbox"));
    table_add(t, json_text_of(x, "id"));
    table_add(t, state_end(x, end));
    table_color(t, state_color(json_text_of(x, "state")));
    table_add(t, output_age(json_text_of(x, "started_at"), age));
    table_add(t, state_duration(x, time));
    if (all) {
        exec_table_add_ms(t, ended, "cpu_ms");
        exec_table_add_size(t, ended, "memory_peak", NULL);
        exec_table_add_size(t, ended, "io_read", NULL);
        exec_table_add_size(t, ended, "io_write", NULL);
        exec_table_add_size(t, ended, "stdout_bytes", "stderr_bytes");
    }
    table_add(t, command);
}

void exec_table(const json_t *list, bool all, bool named)
{
    static const char *const before[] = {"SANDBOX", "EXEC", "STATE", "STARTED", "TIME"};
    static const char *const used[] = {"CPU", "MEMORY", "READ", "WRITTEN", "OUTPUT"};
    const char *titles[ARRAY_SIZE(before) + ARRAY_SIZE(used) + 1];
    struct table *t;
    const json_t *x;
    size_t n = 0, i;

    for (i = named ? 0 : 1; i < ARRAY_SIZE(before); i++)
        titles[n++] = before[i];
    for (i = 0; all && i < ARRAY_SIZE(used); i++)
        titles[n++] = used[i];
    titles[n++] = "COMMAND";
    t = table_new(titles, n);
    json_array_foreach (list, i, x) {
        const char *state = json_text_of(x, "state");

        if (all || !state || !STREQ(state, "ended"))
            exec_table_add_row(t, x, all, named);
    }
    table_shorten(t, n - 1); /* COMMAND */
    table_print(t);
    table_free(t);
}

static void exec_table_add_total(struct table *t, const char *of, const char *name,
                                 const json_t *sum)
{
    char count[24];

    table_add(t, of);
    table_add(t, name);
    for (int i = 0; i < 2; i++) {
        snprintf(count, sizeof(count), "%llu",
                 (unsigned long long)json_number_of(sum, i ? "failed" : "execs"));
        table_add(t, count);
    }
    exec_table_add_ms(t, sum, "wall_ms");
    exec_table_add_ms(t, sum, "cpu_ms");
    exec_table_add_size(t, sum, "memory_peak", NULL);
    exec_table_add_size(t, sum, "io_read", NULL);
    exec_table_add_size(t, sum, "io_write", NULL);
    exec_table_add_size(t, sum, "output_bytes", NULL);
}

void exec_totals(const json_t *totals)
{
    static const char *const titles[] = {"KIND", "NAME",   "EXECS", "FAILED",  "TIME",
                                         "CPU",  "MEMORY", "READ",  "WRITTEN", "OUTPUT"};
    static const char *const scopes[][2] = {{"sandboxes", "sandbox"}, {"labels", "label"}};
    struct table *t = table_new(titles, ARRAY_SIZE(titles));
    const char *name;
    json_t *sum;

    for (size_t i = 0; i < ARRAY_SIZE(scopes); i++)
        json_object_foreach (json_object_get(totals, scopes[i][0]), name, sum)
            exec_table_add_total(t, scopes[i][1], name, sum);
    if (json_object_get(totals, "all"))
        exec_table_add_total(t, "all", NULL, json_object_get(totals, "all"));
    else
        exec_table_add_total(t, "all", NULL, totals);
    table_print(t);
    table_free(t);
}
