/*
 * Memory for request bodies. A small body is read at once. A large one first reserves its whole
 * length (or the maximum, if it comes in chunks) from one budget of the server; when that is used
 * up, the connection waits in a queue and is not read. So many clients with large requests take
 * turns instead of memory, and none of them fails. A body that has begun always has room to end,
 * which is why the whole length is reserved.
 */
#include "lib/base/cleanup.h"
#include "lib/http/server/http-conn.h"

static bool http_room_fits(const struct http_server *s, size_t bytes)
{
    /* A single body may exceed the budget: the limit of one body is configured separately. */
    return s->room_used == 0 ||
           bytes <= s->config.bodies_max - MIN(s->room_used, s->config.bodies_max);
}

static void http_room_reserve(struct http_conn *c, size_t bytes)
{
    c->req->room = bytes;
    c->server->room_used += bytes;
}

bool room_take(struct http_conn *c, size_t bytes)
{
    struct http_server *s = c->server;

    if (bytes <= ROOM_SMALL || !s->config.bodies_max)
        return true;
    if (!s->room_first && http_room_fits(s, bytes)) {
        http_room_reserve(c, bytes);
        return true;
    }
    c->room_wanted = bytes;
    *(s->room_first ? &s->room_last->room_next : &s->room_first) = c;
    s->room_last = c;
    return false;
}

static void http_room_unqueue(struct http_conn *c)
{
    struct http_server *s = c->server;
    struct http_conn *before = NULL;

    c->room_wanted = 0;
    for (struct http_conn **at = &s->room_first; *at; at = &(*at)->room_next) {
        if (*at == c) {
            *at = c->room_next;
            break;
        }
        before = *at;
    }
    if (s->room_last == c)
        s->room_last = before;
    c->room_next = NULL;
}

/* In order of arrival: otherwise small requests could keep a large one waiting for ever. */
static void http_room_admit(struct http_server *s)
{
    while (s->room_first && http_room_fits(s, s->room_first->room_wanted)) {
        struct http_conn *c = s->room_first;
        size_t bytes = c->room_wanted;

        http_room_unqueue(c);
        http_room_reserve(c, bytes);
        conn_begin_body(c);
        c->more = c->in.len > 0;
        conn_update(c);
    }
}

void room_leave(struct http_conn *c)
{
    if (!c->room_wanted)
        return;
    http_room_unqueue(c);
    http_room_admit(c->server); /* the next one may want less */
}

void room_give_back(struct http_req *r)
{
    if (!r->room || !r->conn)
        return;
    r->conn->server->room_used -= r->room;
    r->room = 0;
    http_room_admit(r->conn->server);
}
