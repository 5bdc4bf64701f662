/* Answers of an image registry and its token server: a challenge in a header, a token in a document.
 * The token goes into a header that we send, so it must not contain a line end. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "image/transfer/challenge.h"
#include "lib/base/xalloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char *text = xstrndup((const char *)data, len), *token = NULL;
    struct challenge c = {0};

    if (challenge_parse(text, &c, NULL) >= 0) {
        MUST(c.scheme == CHALLENGE_BASIC || c.realm);
        MUST(!c.realm || !strpbrk(c.realm, "\r\n"));
        MUST(!c.service || !strpbrk(c.service, "\r\n"));
    }
    challenge_done(&c);
    if (challenge_parse_token((const char *)data, len, &token, NULL) >= 0)
        MUST(*token && !strpbrk(token, " \r\n\t"));
    free(token);
    free(text);
    return 0;
}
