#include "cli/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

enum { SECRET_SIZE_MAX = 64 << 10 };

int input_read(const char *path, size_t max, char **ret, size_t *ret_len, struct err *err)
{
    bool in = STREQ(path, "-");
    const char *what = in ? "standard input" : path;
    _cleanup_close_ int own = in ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    _cleanup_free_ char *data = NULL;
    ssize_t n;

    if (!in && own < 0)
        return err_sys(err, errno, "open '%s'", path);
    data = xmalloc(max + 2);
    n = fd_read_full(in ? STDIN_FILENO : own, data, max + 1);
    if (n < 0)
        return err_sys(err, (int)-n, "read '%s'", what);
    if ((size_t)n > max)
        return err_set(err, ERR_LIMIT, "'%s' is larger than %zu bytes", what, max);
    data[n] = '\0';
    *ret = TAKE_PTR(data);
    *ret_len = (size_t)n;
    return 0;
}

static int cli_secrets_set(json_t *obj, const char *name, const char *value, size_t len,
                           struct err *err)
{
    json_t *text = memchr(value, 0, len) ? NULL : json_stringn(value, len);

    if (json_object_get(obj, name)) {
        json_decref(text);
        return err_set(err, ERR_INVALID, "--secret: '%s' is given twice", name);
    }
    if (!text) {
        err_set(err, ERR_INVALID, "--secret: the value of '%s' is not UTF-8 text", name);
        return err_hint(err, "Encode the value, for example with base64.");
    }
    json_object_set_new(obj, name, text);
    return 0;
}

/* Errors never show the text after the '='. */
static int cli_secrets_add(json_t *obj, const char *arg, struct err *err)
{
    const char *eq = strchr(arg, '=');
    _cleanup_free_ char *name = xstrndup(arg, eq ? (size_t)(eq - arg) : strlen(arg)), *value = NULL;
    size_t len;
    int r;

    if (parse_secret_name(name, err) < 0)
        return err_wrap(err, "--secret");
    if (!eq) {
        const char *set = getenv(name);

        if (set)
            return cli_secrets_set(obj, name, set, strlen(set), err);
        err_set(err, ERR_INVALID, "--secret: environment variable '%s' is not set", name);
        return err_hint(err, "Set the variable, or use a file: --secret %s=@FILE.", name);
    }
    if (eq[1] != '@' || !eq[2]) {
        err_set(err, ERR_INVALID, "--secret: the value of '%s' must not be on the command line",
                name);
        return err_hint(
            err,
            "Every user of this machine can read the command line. Use --secret %s=@FILE, "
            "--secret %s=@- (standard input) or --secret %s (environment).",
            name, name, name);
    }
    r = input_read(eq + 2, SECRET_SIZE_MAX, &value, &len, err);
    if (r < 0)
        return err_wrap(err, "--secret %s", name);
    r = cli_secrets_set(obj, name, value, len, err);
    explicit_bzero(value, len);
    return r;
}

int secrets_from_args(const struct cli_args *a, json_t *doc, struct err *err)
{
    _cleanup_json_ json_t *obj = json_object();
    const char *v, *payload = args_get(a, "payload");
    bool taken = args_has(a, "interactive") || (payload && STREQ(payload, "-"));

    for (size_t i = 0; (v = args_next(a, "secret", &i));) {
        const char *eq = strchr(v, '=');
        bool in = eq && STREQ(eq, "=@-");
        int r;

        if (in && taken)
            return err_set(err, ERR_INVALID,
                           "--secret: standard input is already used by another option");
        taken |= in;
        r = cli_secrets_add(obj, v, err);
        if (r < 0)
            return r;
    }
    if (json_object_size(obj))
        json_object_set(doc, "secrets", obj);
    return 0;
}
