#include "packages/digest.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/text.h"
#include "lib/base/xalloc.h"

struct algo {
    const char *name;
    size_t size; /* bytes */
    const EVP_MD *(*md)(void);
};

static const struct algo algos[DIGEST_MAX] = {
    [DIGEST_SHA1] = {"sha1", 20, EVP_sha1},
    [DIGEST_SHA256] = {"sha256", 32, EVP_sha256},
    [DIGEST_SHA384] = {"sha384", 48, EVP_sha384},
    [DIGEST_SHA512] = {"sha512", 64, EVP_sha512},
};

struct hasher {
    EVP_MD_CTX *ctx;
    enum digest_algo algo;
};

const char *digest_algo_name(enum digest_algo a)
{
    return algos[a].name;
}

static void packages_digest_to_hex(const unsigned char *raw, size_t n, char *hex)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        hex[2 * i] = digits[raw[i] >> 4];
        hex[2 * i + 1] = digits[raw[i] & 15];
    }
    hex[2 * n] = '\0';
}

bool digest_from_hex(enum digest_algo algo, const char *hex, struct digest *ret)
{
    size_t n = 2 * algos[algo].size;

    if (strlen(hex) != n)
        return false;
    ret->algo = algo;
    for (size_t i = 0; i < n; i++) {
        int v = text_hex_digit(hex[i]);

        if (v < 0)
            return false;
        ret->hex[i] = "0123456789abcdef"[v];
    }
    ret->hex[n] = '\0';
    return true;
}

bool digest_from_parts(const char *algo, const char *hex, struct digest *ret)
{
    for (int i = 0; i < DIGEST_MAX; i++)
        if (STREQ(algo, algos[i].name))
            return digest_from_hex((enum digest_algo)i, hex, ret);
    return false;
}

/* One word "sha512-<base64>[?options]". */
static bool packages_digest_from_sri_word(const char *s, size_t len, struct digest *ret)
{
    unsigned char raw[96];
    size_t prefix, text;

    for (int i = 0; i < DIGEST_MAX; i++) {
        prefix = strlen(algos[i].name) + 1;
        text = 4 * ((algos[i].size + 2) / 3);
        if (len < prefix + text || strncmp(s, algos[i].name, prefix - 1) != 0 ||
            s[prefix - 1] != '-' || (len > prefix + text && s[prefix + text] != '?'))
            continue;
        if (EVP_DecodeBlock(raw, (const unsigned char *)s + prefix, (int)text) < 0)
            return false;
        ret->algo = (enum digest_algo)i;
        packages_digest_to_hex(raw, algos[i].size, ret->hex);
        return true;
    }
    return false;
}

bool digest_from_sri(const char *text, struct digest *ret)
{
    struct digest best = {0}, d = {0};
    bool found = false;

    for (const char *p = text; *p;) {
        size_t n = strcspn(p, " ");

        if (packages_digest_from_sri_word(p, n, &d) && (!found || d.algo > best.algo)) {
            best = d;
            found = true;
        }
        p += n;
        p += *p == ' ';
    }
    if (found)
        *ret = best;
    return found;
}

bool digest_equal(const struct digest *a, const struct digest *b)
{
    return a->algo == b->algo && STREQ(a->hex, b->hex);
}

void digest_key(const struct digest *d, char ret[static DIGEST_KEY_MAX])
{
    snprintf(ret, DIGEST_KEY_MAX, "%s:%s", algos[d->algo].name, d->hex);
}

struct hasher *hasher_new(enum digest_algo algo)
{
    struct hasher *h = xnew0(struct hasher);

    h->algo = algo;
    h->ctx = EVP_MD_CTX_new();
    if (!h->ctx || EVP_DigestInit_ex(h->ctx, algos[algo].md(), NULL) != 1)
        abort(); /* out of memory, or an OpenSSL without the digest: nothing could be verified */
    return h;
}

void hasher_free(struct hasher *h)
{
    if (!h)
        return;
    EVP_MD_CTX_free(h->ctx);
    free(h);
}

void hasher_add(struct hasher *h, const void *data, size_t len)
{
    if (EVP_DigestUpdate(h->ctx, data, len) != 1)
        abort();
}

void hasher_end(struct hasher *h, struct digest *ret)
{
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    if (EVP_DigestFinal_ex(h->ctx, raw, &n) != 1)
        abort();
    ret->algo = h->algo;
    packages_digest_to_hex(raw, n, ret->hex);
}

bool digest_of_file(int fd, enum digest_algo algo, struct digest *ret)
{
    _cleanup_free_ char *block = xmalloc(KIB(256));
    struct hasher *h = hasher_new(algo);
    off_t at = 0;
    ssize_t n;

    while ((n = pread(fd, block, KIB(256), at)) > 0) {
        hasher_add(h, block, (size_t)n);
        at += n;
    }
    hasher_end(h, ret);
    hasher_free(h);
    return n == 0;
}
