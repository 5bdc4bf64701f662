#include <string.h>
#include <strings.h>

#include "lib/http/wire/http.h"

/* One "name=value" of the list at *list. False: the list is at its end. */
static bool http_cookie_next(const char **list, const char **ret, size_t *ret_len)
{
    const char *p = *list + strspn(*list, "; \t");

    *ret = p;
    *ret_len = strcspn(p, ";");
    *list = p + *ret_len;
    return *ret_len > 0;
}

static bool http_cookie_in_list(const char *list, const char *name,
                                bool (*fn)(void *arg, const char *value), void *arg)
{
    size_t name_len = strlen(name), len;
    char value[HTTP_COOKIE_MAX];
    const char *p;

    while (http_cookie_next(&list, &p, &len)) {
        if (len <= name_len || p[name_len] != '=' || memcmp(p, name, name_len) != 0 ||
            len - name_len - 1 >= sizeof(value))
            continue;
        memcpy(value, p + name_len + 1, len - name_len - 1);
        value[len - name_len - 1] = '\0';
        if (fn(arg, value))
            return true;
    }
    return false;
}

bool http_cookie_any(const struct http_head *head, const char *name,
                     bool (*fn)(void *arg, const char *value), void *arg)
{
    for (size_t i = 0; i < head->n_fields; i++)
        if (strcasecmp(head->fields[i].name, "Cookie") == 0 &&
            http_cookie_in_list(head->fields[i].value, name, fn, arg))
            return true;
    return false;
}
