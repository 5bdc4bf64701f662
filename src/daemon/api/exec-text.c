#include "daemon/api/exec-text.h"

#include "lib/base/base64.h"
#include "lib/base/cleanup.h"
#include "lib/base/text.h"

void exec_text_put(json_t *o, const char *data, size_t len)
{
    _cleanup_free_ char *text = NULL;

    if (text_is_utf8(data, len)) {
        json_object_set_new(o, "text", json_stringn_nocheck(data, len));
        return;
    }
    text = base64_encode(data, len);
    json_object_set_new(o, "base64", json_string(text));
}

/* The length of a character by its first byte; 0: not a first byte. */
static size_t exec_text_length(unsigned char first)
{
    return first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 0;
}

size_t exec_text_cut(const char *data, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        size_t want = exec_text_length((unsigned char)data[len - back]);

        if (want)
            return want > back ? back : 0;
        if ((data[len - back] & 0xC0) != 0x80)
            return 0;
    }
    return 0;
}

size_t exec_text_skip(const char *data, size_t len)
{
    size_t n = 0;

    while (n < len && n < 3 && (data[n] & 0xC0) == 0x80)
        n++;
    return n;
}
