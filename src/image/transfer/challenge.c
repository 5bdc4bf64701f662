#include "image/transfer/challenge.h"

#include <string.h>
#include <strings.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

enum { VALUE_MAX = 4096, TOKEN_MAX = 64 << 10 };

static const char *challenge_skip_blanks(const char *s)
{
    while (*s == ' ' || *s == '\t' || *s == ',')
        s++;
    return s;
}

static int challenge_bad(struct err *err)
{
    return err_set(err, ERR_INVALID, "the registry uses an unsupported authentication scheme");
}

/* Reads a token or a quoted text, and moves *at behind it. */
static int challenge_take_value(const char **at, char **ret, struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(VALUE_MAX);
    const char *s = *at;
    bool quoted = *s == '"';

    for (s += quoted; *s && (quoted ? *s != '"' : !strchr(" \t,", *s)); s++) {
        if (quoted && *s == '\\' && s[1])
            s++;
        if ((unsigned char)*s < ' ' || buf_append_c(&b, *s) < 0)
            return challenge_bad(err);
    }
    if (quoted && *s != '"')
        return challenge_bad(err);
    *at = s + quoted;
    *ret = buf_steal(&b);
    return 0;
}

static int challenge_take_parameter(const char **at, struct challenge *c, struct err *err)
{
    const char *key = *at, *eq = strchr(key, '=');
    size_t len = eq ? (size_t)(eq - key) : 0;
    const struct {
        const char *name;
        char **at;
    } known[] = {{"realm", &c->realm}, {"service", &c->service}, {"scope", &c->scope}};
    _cleanup_free_ char *value = NULL;
    int r;

    if (!eq || len == 0 || strcspn(key, " \t,\"") < len)
        return challenge_bad(err);
    *at = eq + 1;
    r = challenge_take_value(at, &value, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        if (strlen(known[i].name) == len && strncasecmp(known[i].name, key, len) == 0 &&
            !*known[i].at)
            *known[i].at = TAKE_PTR(value);
    return 0;
}

int challenge_parse(const char *text, struct challenge *ret, struct err *err)
{
    _cleanup_(challenge_done) struct challenge c = {0};
    const char *at = challenge_skip_blanks(text);
    int r;

    if (strncasecmp(at, "basic", 5) == 0 && strchr(" \t", at[5])) {
        c.scheme = CHALLENGE_BASIC;
        at += 5;
    } else if (strncasecmp(at, "bearer ", 7) == 0) {
        c.scheme = CHALLENGE_BEARER;
        at += 7;
    } else {
        return challenge_bad(err);
    }
    for (at = challenge_skip_blanks(at); *at; at = challenge_skip_blanks(at)) {
        r = challenge_take_parameter(&at, &c, err);
        if (r < 0)
            return r;
    }
    if (c.scheme == CHALLENGE_BEARER && !c.realm)
        return challenge_bad(err);
    *ret = c;
    c = (struct challenge){0};
    return 0;
}

void challenge_done(struct challenge *c)
{
    free(c->realm);
    free(c->service);
    free(c->scope);
    *c = (struct challenge){0};
}

int challenge_parse_token(const char *text, size_t len, char **ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    const char *token;
    int r = json_parse("the token server's answer", text, len, &doc, err);

    if (r < 0)
        return r;
    token = json_string_value(json_object_get(doc, "token"));
    if (!token)
        token = json_string_value(json_object_get(doc, "access_token"));
    if (!token || !*token || strlen(token) > TOKEN_MAX)
        return err_set(err, ERR_INVALID, "the token server's answer has no token");
    for (const char *s = token; *s; s++)
        if (*s <= ' ' || *s > '~')
            return err_set(err, ERR_INVALID, "the token server's token has invalid characters");
    *ret = xstrdup(token);
    return 0;
}
