/*
 * The Docker engine without Docker. Tests the content of its requests (hardening, archive), and its
 * ensure operations against a model of an engine with the habits of real ones: several networks of
 * one name, "create" that answers with an old volume, messages instead of codes.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/engine/caches.h"
#include "daemon/engine/docker/backend.h"
#include "daemon/engine/docker/body.h"
#include "daemon/engine/docker/created.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/tar.h"
#include "lib/base/xalloc.h"
#include "lib/os/rmtree.h"
#include "tap.h"

enum { REQUEST_MAX = 64 << 10, CALLERS = 20 };

/* ---- a model engine ---- */

struct model {
    char dir[32];
    int listener;
    pthread_t thread;
    pthread_mutex_t lock;
    json_t *networks, *volumes; /* arrays of documents */
    unsigned creates;           /* calls of networks/create and volumes/create */
    int refuse;                 /* status of every create; 0: create succeeds */
    const char *words;          /* its body */
    bool unique;                /* like Podman: refuses a second network of one name */
    unsigned visits;            /* open connections */
};

static void reply(int fd, int status, const char *body)
{
    _cleanup_free_ char *text =
        xasprintf("HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                  "Connection: close\r\n\r\n%s",
                  status, strlen(body), body);

    fd_write_all(fd, text, strlen(text));
}

static void reply_json(int fd, int status, json_t *doc)
{
    _cleanup_free_ char *text = json_to_text(doc, false);

    reply(fd, status, text);
}

static json_t *named(json_t *list, const char *name)
{
    json_t *item;
    size_t i;

    json_array_foreach (list, i, item)
        if (STREQ(json_string_value(json_object_get(item, "Name")), name))
            return item;
    return NULL;
}

static void create_network(struct model *m, int fd, json_t *doc)
{
    const char *name = json_string_value(json_object_get(doc, "Name"));

    if (m->unique && named(m->networks, name)) {
        reply(fd, 500,
              "{\"cause\":\"network already exists\",\"message\":\"network name ripcord-net "
              "already used: network already exists\",\"response\":500}");
        return;
    }
    json_object_set_new(doc, "Id", json_sprintf("net%04u", m->creates));
    json_object_set_new(doc, "Created", json_sprintf("2026-01-01T00:00:00.%09uZ", m->creates));
    json_array_append(m->networks, doc);
    reply_json(fd, 201, doc);
}

static void create_volume(struct model *m, int fd, json_t *doc)
{
    json_t *old = named(m->volumes, json_string_value(json_object_get(doc, "Name")));

    if (!old) {
        json_array_append(m->volumes, doc);
        old = doc;
    }
    reply_json(fd, 201, old);
}

static void delete_network(struct model *m, int fd, const char *id)
{
    json_t *item;
    size_t i;

    json_array_foreach (m->networks, i, item) {
        const char *have = json_string_value(json_object_get(item, "Id"));

        if (strncmp(id, have, strlen(have)) == 0) {
            json_array_remove(m->networks, i);
            reply(fd, 204, "");
            return;
        }
    }
    reply(fd, 404, "{\"message\":\"network not found\"}");
}

/* With the lock held. */
static void answer(struct model *m, int fd, const char *head, json_t *doc)
{
    bool create = strstr(head, "/create ") != NULL;

    m->creates += create;
    if (create && m->refuse)
        reply(fd, m->refuse, m->words);
    else if (strstr(head, "/networks/create "))
        create_network(m, fd, doc);
    else if (strstr(head, "/volumes/create "))
        create_volume(m, fd, doc);
    else if (strncmp(head, "DELETE", 6) == 0)
        delete_network(m, fd, strstr(head, "/networks/") + strlen("/networks/"));
    else
        reply_json(fd, 200, m->networks);
}

struct visit {
    struct model *m;
    int fd;
};

/* Reads the whole head and Content-Length bytes into `text`. Returns the body, or NULL. */
static const char *read_request(int fd, char *text)
{
    const char *end = NULL, *length;
    size_t len = 0, want = 0;

    while (!end || len < (size_t)(end + 4 - text) + want) {
        ssize_t n = read(fd, text + len, REQUEST_MAX - 1 - len);

        if (n <= 0)
            return NULL;
        len += (size_t)n;
        end = strstr(text, "\r\n\r\n");
        length = end ? strcasestr(text, "content-length: ") : NULL;
        want = length && length < end ? strtoul(length + 16, NULL, 10) : 0;
    }
    return end + 4;
}

/* Each connection has one request. */
static void *serve(void *arg)
{
    struct visit *v = arg;
    char *text = xcalloc(1, REQUEST_MAX);
    const char *body = read_request(v->fd, text);
    struct model *m = v->m;
    json_t *doc;

    pthread_mutex_lock(&m->lock);
    doc = body && *body ? json_loads(body, 0, NULL) : NULL;
    if (body)
        answer(m, v->fd, text, doc);
    json_decref(doc);
    fd_close(v->fd);
    free(text);
    free(v);
    m->visits--;
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

static void *accept_all(void *arg)
{
    struct model *m = arg;

    for (;;) {
        int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC);
        struct visit *v;
        pthread_t t;

        if (fd < 0)
            return NULL;
        v = xnew0(struct visit);
        *v = (struct visit){m, fd};
        pthread_mutex_lock(&m->lock);
        m->visits++;
        pthread_mutex_unlock(&m->lock);
        if (pthread_create(&t, NULL, serve, v) != 0)
            abort();
        pthread_detach(t);
    }
}

static void model_up(struct model *m)
{
    _cleanup_close_ int dir = -1;

    *m = (struct model){.dir = "/tmp/test-docker-eng-XXXXXX"};
    if (!mkdtemp(m->dir) || dir_open(AT_FDCWD, m->dir, &dir, NULL) < 0 ||
        unix_listen(dir, "api.sock", SOCK_STREAM, 0600, &m->listener, NULL) < 0)
        abort();
    pthread_mutex_init(&m->lock, NULL);
    m->networks = json_array();
    m->volumes = json_array();
    if (pthread_create(&m->thread, NULL, accept_all, m) != 0)
        abort();
}

static void model_down(struct model *m)
{
    shutdown(m->listener, SHUT_RDWR);
    pthread_join(m->thread, NULL);
    fd_close(m->listener);
    for (bool busy = true; busy;) {
        pthread_mutex_lock(&m->lock);
        busy = m->visits > 0;
        pthread_mutex_unlock(&m->lock);
        usleep(busy ? 1000 : 0);
    }
    pthread_mutex_destroy(&m->lock);
    json_decref(m->networks);
    json_decref(m->volumes);
    rmtree(AT_FDCWD, m->dir, NULL);
}

static void forget_networks(struct model *m)
{
    pthread_mutex_lock(&m->lock);
    json_array_clear(m->networks);
    pthread_mutex_unlock(&m->lock);
}

static struct docker_engine *engine_up(const struct model *m, const char *root,
                                       enum docker_flavour flavour)
{
    const struct engine_config config = {
        .state_dir = m->dir,
        .run_dir = m->dir,
        .root_id = root,
        .libexec_dir = "/nowhere",
        .docker = {.host = "", .prefix = "ripcord", .image = "x", .timeout = 10 * USEC_PER_SEC}};
    _cleanup_endpoint_ struct docker_endpoint endpoint = {0};
    _cleanup_free_ char *where = xasprintf("unix://%s/api.sock", m->dir);
    struct engine *e = engine_docker_ops.make(&config);
    struct docker_engine *d = docker_of(e);

    e->ops = &engine_docker_ops;
    d->clients = xcalloc(1, sizeof(struct docker *));
    if (docker_endpoint_parse(where, &endpoint, NULL) < 0 ||
        docker_open_known(&endpoint, flavour, 41, &d->clients[0], NULL) < 0)
        abort();
    d->n_clients = 1;
    return d;
}

static void engine_down(struct docker_engine *d)
{
    engine_docker_ops.close(&d->engine);
}

static int network(struct docker_engine *d, char **ret, struct err *err)
{
    struct deadline by = deadline_in(60 * USEC_PER_SEC);

    return ensure_network(d, &by, ret, err);
}

static int volume(struct docker_engine *d, const char *name, const char *id, struct err *err)
{
    struct deadline by = deadline_in(60 * USEC_PER_SEC);

    return ensure_volume(d, name, id, &by, err);
}

/* ---- networks ---- */

struct caller {
    pthread_t thread;
    struct docker_engine *d;
    char *id;
};

static void *call_ensure(void *arg)
{
    struct caller *c = arg;

    network(c->d, &c->id, NULL);
    return NULL;
}

/* From two roots at once, each with its own cache, like two daemons. */
static void race(struct model *m, enum docker_flavour flavour)
{
    struct docker_engine *d[2] = {engine_up(m, "aaaaaaaaaaaaaaaa", flavour),
                                  engine_up(m, "bbbbbbbbbbbbbbbb", flavour)};
    struct caller callers[CALLERS] = {0};
    bool same = true;

    for (size_t i = 0; i < CALLERS; i++) {
        callers[i].d = d[i % 2];
        if (pthread_create(&callers[i].thread, NULL, call_ensure, &callers[i]) != 0)
            abort();
    }
    for (size_t i = 0; i < CALLERS; i++)
        pthread_join(callers[i].thread, NULL);
    for (size_t i = 0; i < CALLERS; i++)
        same &= callers[i].id && callers[0].id && STREQ(callers[i].id, callers[0].id);
    for (size_t i = 0; i < CALLERS; i++)
        free(callers[i].id);
    engine_down(d[0]);
    engine_down(d[1]);
    CHECK(same);
    CHECK(json_array_size(m->networks) == 1);
    CHECK(m->creates <= 2); /* one for each process at most */
}

TEST(twenty_callers_in_two_processes_make_one_network)
{
    for (int i = 0; i < 20; i++) {
        struct model m;

        model_up(&m);
        race(&m, DOCKER_FLAVOUR_DOCKER);
        model_down(&m);
    }
}

TEST(the_same_where_names_are_unique)
{
    struct model m;

    model_up(&m);
    m.unique = true;
    race(&m, DOCKER_FLAVOUR_PODMAN);
    model_down(&m);
}

/* The state after a process was killed between create and list. */
TEST(doubles_are_removed_and_the_oldest_stays)
{
    struct docker_engine *d;
    struct model m;
    char *id = NULL;

    model_up(&m);
    d = engine_up(&m, "aaaaaaaaaaaaaaaa", DOCKER_FLAVOUR_DOCKER);
    CHECK(network(d, &id, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        json_t *copy = json_deep_copy(json_array_get(m.networks, 0));

        json_object_set_new(copy, "Id", json_sprintf("later%d", i));
        json_object_set_new(copy, "Created", json_sprintf("2026-01-01T00:00:00.%dZ", i + 1));
        json_array_insert_new(m.networks, 0, copy);
    }
    free(id);
    ensured_forget_all(&d->ensured);
    CHECK(network(d, &id, NULL) == 0);
    CHECK_STR(id, "net0001");
    CHECK(json_array_size(m.networks) == 1);
    free(id);
    engine_down(d);
    model_down(&m);
}

TEST(success_is_remembered_until_it_is_forgotten)
{
    struct docker_engine *d;
    struct model m;

    model_up(&m);
    d = engine_up(&m, "aaaaaaaaaaaaaaaa", DOCKER_FLAVOUR_DOCKER);
    for (int i = 0; i < 3; i++) {
        _cleanup_free_ char *id = NULL;

        CHECK(network(d, &id, NULL) == 0);
        if (i == 0)
            forget_networks(&m); /* the cache does not know it yet */
        if (i == 1)
            ensured_forget(&d->ensured, "network", "ripcord-net");
        CHECK(m.creates == (i < 2 ? 1U : 2U));
    }
    engine_down(d);
    model_down(&m);
}

TEST(a_broken_engine_is_not_an_existing_network)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct docker_engine *d;
    struct model m;
    char *id = NULL;

    model_up(&m);
    m.refuse = 500;
    m.words = "{\"message\":\"iptables failed: already exists in a way nobody likes\"}";
    d = engine_up(&m, "aaaaaaaaaaaaaaaa", DOCKER_FLAVOUR_DOCKER);
    CHECK(network(d, &id, &err) < 0 && !id);
    CHECK(strstr(err.msg, "iptables failed") && strstr(err.msg, "network 'ripcord-net'"));
    m.refuse = 0; /* failures are not cached */
    CHECK(network(d, &id, NULL) == 0);
    free(id);
    engine_down(d);
    model_down(&m);
}

TEST(a_network_that_differs_is_an_error_that_says_how)
{
    static const struct {
        const char *doc, *words;
    } rows[] = {
        {"{\"Name\":\"ripcord-net\",\"Id\":\"x\",\"Driver\":\"bridge\",\"Labels\":{}}",
         "label ripcord.shared is '', not 'ripcord'"},
        {"{\"Name\":\"ripcord-net\",\"Id\":\"x\",\"Driver\":\"macvlan\",\"Labels\":"
         "{\"ripcord.shared\":\"ripcord\"}}",
         "driver is 'macvlan', not 'bridge'"},
        {"{\"Name\":\"ripcord-net\",\"Id\":\"x\",\"Driver\":\"bridge\",\"Labels\":"
         "{\"ripcord.shared\":\"ripcord\"},\"Options\":{}}",
         "enable_icc is '', not 'false'"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_err_ struct err err = ERR_INIT;
        struct docker_engine *d;
        struct model m;
        char *id = NULL;

        model_up(&m);
        json_array_append_new(m.networks, json_loads(rows[i].doc, 0, NULL));
        d = engine_up(&m, "aaaaaaaaaaaaaaaa", DOCKER_FLAVOUR_DOCKER);
        CHECK(network(d, &id, &err) == -ERR_CONFLICT);
        CHECK(strstr(err.msg, rows[i].words) && err.hint);
        CHECK(m.creates == 0 && json_array_size(m.networks) == 1);
        engine_down(d);
        model_down(&m);
    }
}

/* ---- volumes ---- */

TEST(an_old_volume_of_somebody_else_is_not_taken)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct docker_engine *d, *other;
    struct model m;

    model_up(&m);
    d = engine_up(&m, "aaaaaaaaaaaaaaaa", DOCKER_FLAVOUR_DOCKER);
    other = engine_up(&m, "bbbbbbbbbbbbbbbb", DOCKER_FLAVOUR_DOCKER);
    CHECK(volume(d, "ripcord-home-a", "0000000000000001", NULL) == 0);
    CHECK(volume(d, "ripcord-home-a", "0000000000000001", NULL) == 0);
    CHECK(volume(other, "ripcord-home-a", "0000000000000002", &err) == -ERR_CONFLICT);
    CHECK(strstr(err.msg, "volume 'ripcord-home-a'") && strstr(err.msg, "ripcord.root"));
    CHECK(volume(d, "ripcord-cache-pip", NULL, NULL) == 0);
    CHECK(volume(other, "ripcord-cache-pip", NULL, NULL) == 0); /* shared by the prefix */
    engine_down(d);
    engine_down(other);
    model_down(&m);
}

/* ---- the body of a create ---- */

static void request_init(struct sandbox_request *req)
{
    *req = (struct sandbox_request){.id = "0123456789abcdef", .name = "box", .hash = "cafe"};
    req->spec = (struct sandbox_spec){.image_digest = xstrdup("sha256:1"),
                                      .user = xstrdup("agent"),
                                      .workdir = xstrdup("/w"),
                                      .memory = MIB(512),
                                      .cpu_milli = 8000,
                                      .pids = 77,
                                      .nofile = 30000,
                                      .tmp_size = MIB(1),
                                      .run_size = MIB(2),
                                      .scratch_size = MIB(3)};
    strv_add(&req->spec.env, "SECRET=sek");
    strv_add(&req->spec.labels, "ripcord.id=forged");
}

static const struct body_volume volumes[] = {{"v-home", "/home/agent", false},
                                             {"v-caches", "/cache", false}};

static const struct body_parts parts = {
    .prefix = "ripcord",
    .root_id = "aaaaaaaaaaaaaaaa",
    .volumes = volumes,
    .n_volumes = 2,
    .without = "",
    .seccomp = "{}",
    .caps = ENGINE_CAP_MEMORY_LIMIT | ENGINE_CAP_CPU_LIMIT | ENGINE_CAP_PIDS_LIMIT,
    .cpus = 2,
    .nofile_max = 20000,
    .nproc_max = 4096,
};

static json_int_t number_of(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

TEST(every_hardening_option_is_set)
{
    struct body_parts p = parts;
    struct sandbox_request req;
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *text = NULL;
    const json_t *host;

    request_init(&req);
    p.req = &req;
    doc = body_container(&p);
    text = json_to_text(doc, true);
    host = json_object_get(doc, "HostConfig");
    CHECK(strstr(text, "\"CapDrop\":[\"ALL\"]") && !strstr(text, "CapAdd"));
    CHECK(strstr(text, "\"SecurityOpt\":[\"no-new-privileges\",\"seccomp={}\"]"));
    CHECK(strstr(text, "\"CgroupnsMode\":\"private\"") && strstr(text, "\"NetworkMode\":\"none\""));
    CHECK(strstr(text, "\"Privileged\":false") && !strstr(text, "\"Init\""));
    CHECK(number_of(host, "Memory") == (json_int_t)MIB(512));
    CHECK(number_of(host, "MemorySwap") == (json_int_t)MIB(512));
    CHECK(number_of(host, "PidsLimit") == 77);
    CHECK(number_of(host, "NanoCpus") == 2000000000); /* not more than the machine has */
    CHECK(strstr(text, "{\"Hard\":0,\"Name\":\"core\",\"Soft\":0}"));
    CHECK(strstr(text, "{\"Hard\":20000,\"Name\":\"nofile\",\"Soft\":20000}"));
    CHECK(strstr(text, "\"/tmp\":\"rw,nosuid,nodev,exec,size=1048576,mode=1777\""));
    CHECK(strstr(text, "\"User\":\"agent\"") && strstr(text, "\"Type\":\"none\""));
    CHECK(!strstr(text, "sek")); /* variables go to the relay, not to the engine */
    CHECK(!strstr(text, "forged") && strstr(text, "\"ripcord.id\":\"0123456789abcdef\""));
    CHECK(strstr(text, "\"ripcord.hash\":\"cafe\"") && !strstr(text, "Binds"));
    sandbox_spec_done(&req.spec);
}

struct cursor {
    const char *p;
    size_t left;
};

static ssize_t read_cursor(void *arg, void *data, size_t len)
{
    struct cursor *c = arg;
    size_t n = MIN(len, c->left);

    memcpy(data, c->p, n);
    c->p += n;
    c->left -= n;
    return (ssize_t)n;
}

TEST(the_archive_holds_our_program_and_the_users_folders)
{
    _cleanup_buf_ struct buf tar = BUF_INIT(MIB(1));
    const struct sandbox_request req = {.spec = {.user = (char *)"agent"}};
    const struct body_program program = {.data = "program", .len = 7};
    struct body_parts p = parts;
    struct cursor c;
    struct tar_reader r;
    struct tar_entry *e = xnew0(struct tar_entry);
    bool guest = false, home = false, pip = false;

    p.req = &req;
    CHECK(body_archive(&p, &program, &tar, NULL) == 0);
    c = (struct cursor){buf_data(&tar), tar.len};
    tar_reader_init(&r, read_cursor, &c);
    while (tar_next(&r, e, NULL) > 0) {
        guest |= STREQ(e->path, ".ripcord/guest") && e->mode == 0111 && e->uid == 0 && e->size == 7;
        home |= STREQ(e->path, "home/agent") && e->uid == 1000;
        pip |= STREQ(e->path, "cache/pip") && e->uid == 1000;
        CHECK(e->path[0] != '/');
    }
    CHECK(guest && home && pip);
    free(e);
}

static mode_t mode_of_guest(bool readable)
{
    _cleanup_buf_ struct buf tar = BUF_INIT(MIB(1));
    const struct body_program program = {.data = "program", .len = 7, .readable = readable};
    struct tar_entry *e;
    struct tar_reader r;
    struct cursor c;
    mode_t mode = 0;

    if (body_guest(&program, &tar, NULL) < 0)
        return 0;
    e = xnew0(struct tar_entry);
    c = (struct cursor){buf_data(&tar), tar.len};
    tar_reader_init(&r, read_cursor, &c);
    while (tar_next(&r, e, NULL) > 0)
        if (STREQ(e->path, ".ripcord/guest"))
            mode = e->mode;
    free(e);
    return mode;
}

TEST(the_program_is_readable_only_where_the_runtime_needs_it)
{
    CHECK(mode_of_guest(false) == 0111);
    CHECK(mode_of_guest(true) == 0555);
}

TEST(gvisor_is_known_by_name_program_or_shim)
{
    _cleanup_json_ json_t *info =
        json_pack("{s:s s:{s:{s:s} s:{s:s} s:{s:s} s:{s:s} s:{s:s}}}", "DefaultRuntime",
                  "sandboxed", "Runtimes", "runc", "path", "runc", "sandboxed", "path",
                  "/opt/bin/runsc-2026", "kata", "path", "/opt/runsc/kata-runtime", "short", "path",
                  "runsc", "shim", "runtimeType", "io.containerd.runsc.v1");

    CHECK(docker_runtime_is_gvisor(info, NULL));
    CHECK(docker_runtime_is_gvisor(info, "sandboxed"));
    CHECK(docker_runtime_is_gvisor(info, "short"));
    CHECK(docker_runtime_is_gvisor(info, "shim"));
    CHECK(docker_runtime_is_gvisor(info, "io.containerd.runsc.v1"));
    CHECK(docker_runtime_is_gvisor(info, "gvisor"));
    CHECK(!docker_runtime_is_gvisor(info, "runc"));
    CHECK(!docker_runtime_is_gvisor(info, "kata"));
    CHECK(!docker_runtime_is_gvisor(info, "unknown"));
}

TEST(older_is_older_whatever_the_digits)
{
    CHECK(created_before("2026-01-01T00:00:00.1Z", "b", "2026-01-01T00:00:00.12Z", "a"));
    CHECK(created_before("2026-01-01T00:00:00Z", "b", "2026-01-01T00:00:00.000000001Z", "a"));
    CHECK(created_before("2026-01-01T00:00:00.999Z", "b", "2026-01-01T00:00:01Z", "a"));
    CHECK(!created_before("2026-01-01T00:00:00.10Z", "b", "2026-01-01T00:00:00.1Z", "a"));
    CHECK(created_before("2026-01-01T00:00:00.10Z", "a", "2026-01-01T00:00:00.1Z", "b"));
    CHECK(!created_before("", "b", "", "a"));
}

TEST(cache_tools_and_modes)
{
    const struct cache_tool *t;
    enum spec_cache_mode m;
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *list = cache_mode_list(1U << CACHE_OFF | 1U << CACHE_SHARED);

    CHECK(cache_tool_find("npm", &t, NULL) == 0);
    CHECK_STR(t->env[1], "NPM_CONFIG_PREFER_OFFLINE=true");
    CHECK(cache_tool_find("nmp", &t, &err) == -ERR_INVALID && strstr(err.hint, "'npm'"));
    CHECK(cache_mode_parse("layered", &m, NULL) == 0 && m == CACHE_LAYERED);
    CHECK_STR(list, "off, shared");
}

static bool all_but_npm(const void *arg, const struct cache_tool *t, enum spec_cache_mode mode)
{
    (void)arg;
    (void)mode;
    return !STREQ(t->name, "npm");
}

TEST(cache_modes_and_variables_of_a_spec)
{
    char *own[] = {(char *)"pip_cache_dir=/mine", NULL};
    struct spec_cache named[] = {{(char *)"uv", CACHE_OFF, NULL},
                                 {(char *)"go", CACHE_SHARED, (char *)"team"}};
    struct sandbox_spec spec = {.user = (char *)"root",
                                .env = own,
                                .cache_mode = CACHE_LAYERED,
                                .caches = named,
                                .n_caches = 2};
    const struct cache_tool *go, *apt, *uv, *pip;
    _cleanup_strv_ char **env = NULL;

    CHECK(cache_tool_find("go", &go, NULL) == 0 && cache_tool_find("apt", &apt, NULL) == 0);
    CHECK(cache_tool_find("uv", &uv, NULL) == 0 && cache_tool_find("pip", &pip, NULL) == 0);
    CHECK(cache_mode_of(&spec, go) == CACHE_SHARED && cache_mode_of(&spec, uv) == CACHE_OFF);
    CHECK(cache_mode_of(&spec, pip) == CACHE_LAYERED && cache_mode_of(&spec, apt) == CACHE_OFF);
    CHECK_STR(cache_group_of(&spec, go), "team");
    CHECK_STR(cache_group_of(&spec, pip), "");
    cache_variables(&spec, all_but_npm, NULL, &env);
    CHECK(strv_contains(env, "GOCACHE=/cache/go/build"));
    CHECK(!strv_contains(
        env, "PIP_CACHE_DIR=/cache/pip")); /* the user has set the lower-case variable */
    CHECK(!strv_contains(env, "UV_CACHE_DIR=/cache/uv"));
    CHECK(!strv_contains(env, "NPM_CONFIG_CACHE=/cache/npm"));
    CHECK(cache_owner(&spec) == 0);
    spec.user = (char *)"1234:5";
    CHECK(cache_owner(&spec) == 1234);
    spec.user = (char *)"somebody";
    CHECK(cache_owner(&spec) == 1000);
}
