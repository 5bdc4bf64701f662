/* The display of the events of a build. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/build-view.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"
#include "tap.h"

/* Returns the text that a view prints on stderr for these events. */
static char *shown(bool live, const char *const *events, size_t n, unsigned *ret_line)
{
    int file = memfd_create("stderr", MFD_CLOEXEC),
        saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    struct build_view *v = build_view_new(live);
    const char *step = NULL;
    char *text = NULL;

    if (file < 0 || saved < 0 || dup2(file, STDERR_FILENO) < 0)
        abort();
    for (size_t i = 0; i < n; i++) {
        _cleanup_json_ json_t *e = json_loads(events[i], 0, NULL);

        if (!e)
            abort();
        build_view_event(v, e);
    }
    *ret_line = build_view_failure(v, &step);
    build_view_free(v);
    fflush(stderr);
    if (dup2(saved, STDERR_FILENO) < 0 || lseek(file, 0, SEEK_SET) < 0)
        abort();
    text = xmalloc(1 << 20);
    text[fd_read_full(file, text, (1 << 20) - 1)] = '\0';
    close(saved);
    close(file);
    return text;
}
#define SHOWN(live, events, line) shown(live, events, sizeof(events) / sizeof((events)[0]), line)

TEST(a_log_has_buildkits_plain_form)
{
    static const char *const events[] = {
        "{\"event\":\"step\",\"step\":1,\"stage\":\"internal\",\"text\":\"load\"}",
        "{\"event\":\"step_end\",\"step\":1,\"ms\":140}",
        "{\"event\":\"step\",\"step\":2,\"n\":2,\"of\":4,\"text\":\"R\\ny\",\"line\":7}",
        "{\"event\":\"step\",\"step\":3,\"n\":1,\"of\":1,\"text\":\"COPY . .\"}",
        "{\"event\":\"cached\",\"step\":3}",
        "{\"event\":\"step_end\",\"step\":3,\"ms\":0}",
        "{\"event\":\"output\",\"step\":2,\"stream\":\"stdout\",\"ms\":1234,\"data\":\"one\\ntw\"}",
        "{\"event\":\"output\",\"step\":2,\"stream\":\"stderr\",\"ms\":1300,\"data\":\"o\\n\\n\"}",
        "{\"event\":\"output\",\"step\":2,\"stream\":\"stdout\",\"ms\":1400,\"data\":\"last\"}",
        "{\"event\":\"step_end\",\"step\":2,\"ms\":1500,\"error\":\"exit code: 3\"}",
    };
    unsigned line;
    _cleanup_free_ char *text = SHOWN(false, events, &line);

    CHECK_STR(text, "#1 [internal] load\n#1 DONE 0.1s\n\n"
                    "#2 [2/4] R y\n\n"
                    "#3 [1/1] COPY . .\n#3 CACHED\n\n"
                    "#2 [2/4] R y\n#2 1.234 one\n#2 1.300 two\n#2 1.300 \n#2 1.400 last\n"
                    "#2 ERROR: exit code: 3\n");
    CHECK(line == 7);
}

TEST(output_of_a_build_is_escaped)
{
    static const char *const events[] = {
        "{\"event\":\"step\",\"step\":1,\"text\":\"RUN \\u001b]0;x\\u0007\"}",
        "{\"event\":\"output\",\"step\":1,\"data\":\"1%\\r\\u001b[32m100%\\u001b[0m\\r\\n\"}",
        "{\"event\":\"output\",\"step\":1,\"ms\":0,\"data\":\"\\u001b]52;c;x\\u0007\\u202e\\n\"}",
        "{\"event\":\"step_end\",\"step\":1,\"ms\":0,\"error\":\"\\u001b[2J\"}",
    };
    unsigned line;
    _cleanup_free_ char *text = SHOWN(false, events, &line);

    CHECK(strstr(text, "#1 0.000 100%\n"));
    CHECK(!strchr(text, '\033') && !strchr(text, '\007') && !strstr(text, "\xe2\x80\xae"));
}

TEST(invalid_events_are_ignored)
{
    static const char *const events[] = {
        "{}",
        "[]",
        "{\"event\":\"output\",\"step\":1,\"data\":\"x\"}",
        "{\"event\":\"step_end\",\"step\":99999999}",
        "{\"event\":\"step\",\"step\":99999999,\"text\":\"x\"}",
        "{\"event\":\"step\",\"step\":3}",
        "{\"event\":\"output\",\"step\":2,\"data\":\"x\"}",
        "{\"event\":\"output\",\"step\":3}",
        "{\"event\":\"new\",\"step\":3}",
        "{\"event\":7}",
    };
    unsigned line;
    _cleanup_free_ char *text = SHOWN(false, events, &line);

    CHECK_STR(text, "#3 \n");
    CHECK(line == 0);
}

TEST(a_live_view_shows_the_end_of_the_step_that_failed)
{
    static const char *const events[] = {
        "{\"event\":\"step\",\"step\":1,\"n\":1,\"of\":1,\"text\":\"RUN x\",\"line\":2}",
        "{\"event\":\"output\",\"step\":1,\"ms\":0,\"data\":\"oh\\nno\\n\"}",
        "{\"event\":\"step_end\",\"step\":1,\"ms\":0,\"error\":\"exit code: 1\"}",
    };
    unsigned line;
    _cleanup_free_ char *text = SHOWN(true, events, &line);

    CHECK(strstr(text, "ERROR [1/1] RUN x  0.0s\n"));
    CHECK(strstr(text, "------\n > [1/1] RUN x:\noh\nno\n------\n"));
    CHECK(line == 2);
}
