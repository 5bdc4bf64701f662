#include "image/oci/digest.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char prefix[] = "sha256:";

bool digest_is_valid(const char *s)
{
    return s && strlen(s) == DIGEST_LEN && strncmp(s, prefix, strlen(prefix)) == 0 &&
           strspn(digest_hex(s), "0123456789abcdef") == 64;
}

const char *digest_hex(const char *digest)
{
    return digest + strlen(prefix);
}

/* libcrypto fails only without memory or with a broken installation: both end the process. */
static void oci_digest_must(int ok)
{
    if (ok != 1)
        abort();
}

void digest_begin_quickly(void)
{
    oci_digest_must(OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL));
}

struct digest_state *digest_begin(void)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();

    oci_digest_must(c && EVP_DigestInit_ex(c, EVP_sha256(), NULL));
    return (struct digest_state *)c;
}

void digest_add(struct digest_state *d, const void *data, size_t len)
{
    oci_digest_must(EVP_DigestUpdate((EVP_MD_CTX *)d, data, len));
}

void digest_end(struct digest_state *d, char ret[DIGEST_MAX])
{
    unsigned char sum[EVP_MAX_MD_SIZE];

    if (!d)
        return;
    oci_digest_must(EVP_DigestFinal_ex((EVP_MD_CTX *)d, sum, NULL));
    EVP_MD_CTX_free((EVP_MD_CTX *)d);
    if (!ret)
        return;
    memcpy(ret, prefix, sizeof(prefix));
    for (size_t i = 0; i < 32; i++)
        snprintf(ret + strlen(prefix) + 2 * i, 3, "%02x", sum[i]);
}

void digest_of(const void *data, size_t len, char ret[static DIGEST_MAX])
{
    struct digest_state *d = digest_begin();

    digest_add(d, data, len);
    digest_end(d, ret);
}
