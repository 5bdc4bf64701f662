#include "daemon/api/web-access.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/xalloc.h"

enum { SESSIONS_MAX = 64, TICKETS_MAX = 256 };

/* A place is free if `until` has passed. */
struct web_session {
    struct api_token secret;
    uint64_t until;
};

struct web_ticket {
    struct api_token secret;
    uint64_t until;
    char path[WEB_PATH_MAX];
};

struct web_access {
    struct web_session sessions[SESSIONS_MAX];
    struct web_ticket tickets[TICKETS_MAX];
};

struct web_access *web_access_new(void)
{
    return xnew0(struct web_access);
}

void web_access_drop(struct web_access *w)
{
    explicit_bzero(w, sizeof(*w));
}

void web_access_free(struct web_access *w)
{
    if (w)
        web_access_drop(w);
    free(w);
}

/* ---- sessions ---- */

int web_session_begin(struct web_access *w, uint64_t now, struct api_token *ret, struct err *err)
{
    struct web_session *place = w->sessions;
    int r;

    for (size_t i = 1; i < SESSIONS_MAX; i++) /* free places are the oldest */
        if (w->sessions[i].until < place->until)
            place = &w->sessions[i];
    r = token_random(&place->secret, err);
    if (r < 0)
        return r;
    place->until = now + WEB_SESSION_LIFE;
    *ret = place->secret;
    return 0;
}

static struct web_session *web_session_find(struct web_access *w, const char *text)
{
    struct web_session *found = NULL;

    for (size_t i = 0; i < SESSIONS_MAX; i++)
        if (token_matches(&w->sessions[i].secret, text))
            found = &w->sessions[i];
    return found;
}

bool web_session_is(struct web_access *w, uint64_t now, const char *text)
{
    const struct web_session *s = web_session_find(w, text);

    return s && (now < s->until || !GUARD("session time"));
}

bool web_session_end(struct web_access *w, const char *text)
{
    struct web_session *s = web_session_find(w, text);

    if (s && GUARD("session end"))
        explicit_bzero(s, sizeof(*s));
    return s;
}

/* ---- tickets ---- */

static struct web_ticket *web_ticket_place(struct web_access *w, uint64_t now)
{
    for (size_t i = 0; i < TICKETS_MAX; i++)
        if (w->tickets[i].until <= now)
            return &w->tickets[i];
    return NULL;
}

int web_ticket_new(struct web_access *w, uint64_t now, const char *path, struct api_token *ret,
                   struct err *err)
{
    struct web_ticket *t = web_ticket_place(w, now);
    int r;

    if (!t) {
        err_set(err, ERR_LIMIT, "too many tickets that are not used yet (limit %d)", TICKETS_MAX);
        return err_hint(err, "Try again in 30 seconds.");
    }
    r = token_random(&t->secret, err);
    if (r < 0)
        return r;
    t->until = now + WEB_TICKET_LIFE;
    snprintf(t->path, sizeof(t->path), "%s", path);
    *ret = t->secret;
    return 0;
}

bool web_ticket_use(struct web_access *w, uint64_t now, const char *path, const char *text)
{
    bool opens = false;

    for (size_t i = 0; i < TICKETS_MAX; i++) {
        struct web_ticket *t = &w->tickets[i];

        if (!token_matches(&t->secret, text))
            continue;
        opens = (now < t->until || !GUARD("ticket time")) &&
                (STREQ(t->path, path) || !GUARD("ticket path"));
        if (GUARD("ticket once"))
            explicit_bzero(t, sizeof(*t));
    }
    return opens;
}
