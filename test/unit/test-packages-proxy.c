#include "tap.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/engine/caches.h"
#include "daemon/packages/packages-proxy.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/loop/loop.h"

struct trace {
    struct loop *loop;
    struct packages_proxy *proxy;
    int answers, errors, warnings;
    struct loop_timer *timer;
    int client;
    ssize_t got; /* of the client: 0 is the end */
};

static void on_warning(void *arg, const char *message)
{
    struct trace *t = arg;

    t->warnings += message[0] != '\0';
}

static void on_event(void *arg, const char *json)
{
    (void)arg;
    (void)json;
}

static void on_answer(void *arg, const struct err *err, const char *json)
{
    struct trace *t = arg;

    t->answers++;
    t->errors += err != NULL && json == NULL;
    loop_stop(t->loop);
}

static void begin(struct trace *t, const char *program)
{
    *t = (struct trace){.client = -1, .got = -1};
    if (loop_new(&t->loop, NULL) < 0)
        abort();
    t->proxy = packages_proxy_new(&(struct packages_proxy_config){.loop = t->loop,
                                                                  .program = program,
                                                                  .settings = "{}",
                                                                  .on_warning = on_warning,
                                                                  .on_event = on_event,
                                                                  .arg = t});
}

static void end(struct trace *t)
{
    packages_proxy_free(t->proxy);
    loop_timer_free(t->timer);
    fd_close(t->client);
    loop_free(t->loop);
}

static void ask(struct trace *t)
{
    packages_proxy_ask(t->proxy, &(struct packages_proxy_ask){.what = PACKAGES_PROXY_STATS},
                       on_answer, t);
}

TEST(request_to_a_process_that_cannot_start)
{
    static const char *const programs[] = {"/nonexistent/packages", "/bin/false", "/bin/true"};

    for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
        struct trace t;

        begin(&t, programs[i]);
        CHECK(!packages_proxy_trouble(t.proxy));
        for (int n = 0; n < 3; n++) {
            ask(&t);
            CHECK(t.answers == n);
            loop_run(t.loop);
            CHECK(t.answers == n + 1 && t.errors == n + 1);
        }
        CHECK(packages_proxy_trouble(t.proxy));
        CHECK(t.warnings == 1); /* the same reason is said once */
        end(&t);
    }
}

TEST(freed_while_a_request_waits)
{
    struct trace t;

    begin(&t, "/bin/cat");
    ask(&t);
    end(&t);
    CHECK(t.answers == 0);
}

/* A listening socket on the loopback, and its client. */
static int listen_and_connect(struct trace *t)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (bind(fd, (struct sockaddr *)&at, len) < 0 || listen(fd, 8) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        abort();
    t->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(t->client, (struct sockaddr *)&at, len) < 0)
        abort();
    return fd;
}

static void look(void *arg)
{
    struct trace *t = arg;
    char byte;

    t->got = recv(t->client, &byte, 1, MSG_DONTWAIT);
    if (t->got >= 0)
        loop_stop(t->loop);
}

/* It would else wait for an answer until its own patience ends. */
TEST(clients_are_cut_off_when_the_process_does_not_answer)
{
    struct trace t;

    begin(&t, "/bin/false");
    packages_proxy_attach(t.proxy, "0123456789abcdef", listen_and_connect(&t), false);
    CHECK(!packages_proxy_serves(t.proxy, "0123456789abcdef"));
    t.timer = loop_timer_new(t.loop, look, &t);
    loop_timer_set(t.timer, USEC_PER_MSEC, true);
    loop_run(t.loop);
    CHECK(t.got == 0);
    CHECK(packages_proxy_trouble(t.proxy));
    CHECK(!packages_proxy_serves(t.proxy, "0123456789abcdef"));
    packages_proxy_forget(t.proxy, "0123456789abcdef");
    packages_proxy_forget(t.proxy, "0123456789abcdef");
    end(&t);
}

TEST(own_variables_win_in_any_case)
{
    struct sandbox_spec spec = {.network = SPEC_NETWORK_PACKAGES};
    _cleanup_strv_ char **env = NULL, **plain = packages_variables(&spec, 7417), **none = NULL;

    strv_add(&spec.env, "npm_config_registry=http://own/");
    strv_add(&spec.env, "PIP_INDEX_URLS=not the same name");
    env = packages_variables(&spec, 7417);
    CHECK(strv_env_get(plain, "NPM_CONFIG_REGISTRY"));
    CHECK(!strv_env_get(env, "NPM_CONFIG_REGISTRY"));
    CHECK(strv_env_get(env, "PIP_INDEX_URL"));
    CHECK(strv_len(env) + 1 == strv_len(plain));
    spec.network = SPEC_NETWORK_OPEN;
    none = packages_variables(&spec, 7417);
    CHECK(strv_len(none) == 0);
    spec.env = strv_free(spec.env);
}
