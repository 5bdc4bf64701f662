/*
 * Two files of the machine make libraries load modules with dlopen():
 *
 *   /etc/nsswitch.conf   may name "resolve", "sss" and others for the lookup of hosts and users.
 *                        The sources "files" and "dns" are a part of libc.a.
 *   openssl.cnf          may name providers, for example of a hardware key.
 */
#include "lib/os/static-program.h"

#ifdef RIPCORD_STATIC
#include <nss.h>
#include <stdlib.h>

#include "lib/base/macro.h"

void static_program_init(void)
{
    static const char *const sources[][2] = {
        {"hosts", "files dns"}, {"passwd", "files"}, {"group", "files"}, {"services", "files"}};

    for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
        __nss_configure_lookup(sources[i][0], sources[i][1]);
    setenv("OPENSSL_CONF", "/dev/null", 1);
}
#else
void static_program_init(void)
{
}
#endif
