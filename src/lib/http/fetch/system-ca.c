#include "lib/http/fetch/system-ca.h"

#include <stddef.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

const char *system_ca_find(const char *root)
{
    /* Bundles in PEM format. The first two names are those of most machines. */
    static const char *const files[] = {
        "/etc/ssl/certs/ca-certificates.crt", /* Debian, Alpine, Arch, NixOS, Gentoo */
        "/etc/pki/tls/certs/ca-bundle.crt",   /* Fedora and its relatives */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* the same, newer releases */
        "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
        "/etc/ssl/cert.pem",                                 /* Alpine without ca-certificates */
    };

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        _cleanup_free_ char *path = xasprintf("%s%s", root, files[i]);

        if (access(path, R_OK) == 0)
            return files[i];
    }
    return NULL;
}
