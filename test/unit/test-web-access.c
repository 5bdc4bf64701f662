/* Sessions and tickets of web pages: how long they live, and how many there are. */
#include "daemon/api/routes.h"
#include "daemon/api/web-access.h"
#include "tap.h"

#define PATH "/v1/sandboxes/a/execs/last/attach"

TEST(a_session_has_a_time)
{
    struct web_access *w = web_access_new();
    struct api_token s = {0};

    CHECK(web_session_begin(w, 5, &s, NULL) >= 0);
    CHECK(web_session_is(w, 5, s.text) && web_session_is(w, 4 + WEB_SESSION_LIFE, s.text));
    CHECK(!web_session_is(w, 5 + WEB_SESSION_LIFE, s.text));
    web_access_free(w);
}

TEST(a_ticket_has_a_time)
{
    struct web_access *w = web_access_new();
    struct api_token t = {0};

    CHECK(web_ticket_new(w, 5, PATH, &t, NULL) >= 0);
    CHECK(web_ticket_use(w, 4 + WEB_TICKET_LIFE, PATH, t.text));
    CHECK(web_ticket_new(w, 5, PATH, &t, NULL) >= 0);
    CHECK(!web_ticket_use(w, 5 + WEB_TICKET_LIFE, PATH, t.text));
    web_access_free(w);
}

TEST(the_oldest_session_ends)
{
    struct web_access *w = web_access_new();
    struct api_token first = {0}, second = {0}, last = {0};

    CHECK(web_session_begin(w, 1, &first, NULL) >= 0);
    CHECK(web_session_begin(w, 2, &second, NULL) >= 0);
    for (uint64_t i = 3; i <= 65; i++)
        CHECK(web_session_begin(w, i, &last, NULL) >= 0);
    CHECK(!web_session_is(w, 65, first.text));
    CHECK(web_session_is(w, 65, second.text) && web_session_is(w, 65, last.text));
    web_access_drop(w);
    CHECK(!web_session_is(w, 65, last.text) && !web_session_is(w, 65, ""));
    web_access_free(w);
}

TEST(tickets_are_limited)
{
    struct web_access *w = web_access_new();
    struct api_token t = {0}, kept = {0};

    for (int i = 0; i < 256; i++) {
        CHECK(web_ticket_new(w, 1, PATH, &t, NULL) >= 0);
        kept = i == 7 ? t : kept;
    }
    CHECK(web_ticket_new(w, 1, PATH, &t, NULL) < 0);
    CHECK(web_ticket_use(w, 1, PATH, kept.text)); /* and one place is free */
    CHECK(web_ticket_new(w, 1, PATH, &t, NULL) >= 0);
    CHECK(web_ticket_new(w, 1, PATH, &t, NULL) < 0);
    CHECK(web_ticket_new(w, 1 + WEB_TICKET_LIFE, PATH, &t, NULL) >= 0);
    web_access_free(w);
}

/* What a sandbox serves is a page of a stranger. */
TEST(ports_are_not_for_pages)
{
    const struct route *list = routes_find("GET", "/v1/sandboxes");
    const struct route *port = routes_find("GET", "/v1/sandboxes/a/ports/8000");

    CHECK(list && routes_admits_pages(list));
    CHECK(port && !routes_admits_pages(port));
}
