#include "image/transfer/settings.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { CA_MAX = 4 << 20 };

static char *settings_copy(const char *s)
{
    return s && *s ? xstrdup(s) : NULL;
}

static int settings_read_list(const json_t *list, const char *name, char ***ret, struct err *err)
{
    return list ? json_read_strv(list, name, ret, err) : 0;
}

static int settings_read_fields(const json_t *doc, struct settings *s, struct err *err)
{
    const char *name = NULL, *digest = NULL, *platform = NULL, *user = NULL, *password = NULL;
    const char *ca_file = NULL, *etag = NULL;
    json_t *mirrors = NULL, *have = NULL, *hosts = NULL;
    uint64_t uid = UINT64_MAX;
    size_t len;
    const struct json_field fields[] = {
        {"uid", JSON_FIELD_U64, &uid},
        {"name", JSON_FIELD_STRING, &name},
        {"digest", JSON_FIELD_STRING, &digest},
        {"platform", JSON_FIELD_STRING, &platform},
        {"plain_http", JSON_FIELD_BOOL, &s->plain_http},
        {"username", JSON_FIELD_STRING, &user},
        {"password", JSON_FIELD_STRING, &password},
        {"mirrors", JSON_FIELD_ARRAY, &mirrors},
        {"ca_file", JSON_FIELD_STRING, &ca_file},
        {"have", JSON_FIELD_ARRAY, &have},
        {"etag", JSON_FIELD_STRING, &etag},
        {"hosts", JSON_FIELD_ARRAY, &hosts},
        {"size_max", JSON_FIELD_U64, &s->size_max},
    };
    int r = json_read(doc, NULL, fields, ARRAY_SIZE(fields), err);

    if (r < 0)
        return r;
    if (!name || (uid != UINT64_MAX && (uid == 0 || uid > INT32_MAX)))
        return err_set(err, ERR_INVALID, "'name' is missing or 'uid' is not valid");
    s->change_user = uid != UINT64_MAX;
    s->uid = (uint32_t)uid;
    s->name = xstrdup(name);
    s->digest = settings_copy(digest);
    s->platform = settings_copy(platform);
    s->username = settings_copy(user);
    s->password = settings_copy(password);
    s->etag = settings_copy(etag);
    r = settings_read_list(mirrors, "mirrors", &s->mirrors, err);
    if (r < 0)
        return r;
    r = settings_read_list(have, "have", &s->have, err);
    if (r < 0)
        return r;
    r = settings_read_list(hosts, "hosts", &s->hosts, err);
    if (r < 0)
        return r;
    return ca_file && *ca_file ? file_read(AT_FDCWD, ca_file, CA_MAX, &s->ca_pem, &len, err) : 0;
}

int settings_parse(const char *text, size_t len, struct settings *ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    struct settings s = {0};
    int r = json_parse("the settings", text, len, &doc, err);

    if (r >= 0)
        r = settings_read_fields(doc, &s, err);
    if (r < 0) {
        settings_done(&s);
        return err_wrap(err, "settings of ripcord-transfer");
    }
    *ret = s;
    return 0;
}

void settings_done(struct settings *s)
{
    free(s->name);
    free(s->digest);
    free(s->platform);
    free(s->username);
    free(s->password);
    free(s->ca_pem);
    strv_free(s->mirrors);
    strv_free(s->have);
    strv_free(s->hosts);
    free(s->etag);
    *s = (struct settings){0};
}
