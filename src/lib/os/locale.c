#include "lib/os/locale.h"

#include <locale.h>
#include <stdlib.h>

#include "lib/base/cleanup.h"
#include "lib/base/path.h"
#include "lib/base/xalloc.h"

#ifdef RIPCORD_STATIC
static bool locale_load(void)
{
    _cleanup_free_ char *beside = path_of_program("locale", "/nonexistent");
    _cleanup_free_ char *folder = beside ? xasprintf("%s/locale", beside) : NULL;
    bool done;

    if (!folder)
        return false;
    setenv("LOCPATH", folder, 1);
    done = setlocale(LC_CTYPE, "C.UTF-8");
    unsetenv("LOCPATH");
    return done;
}

static const char locale_hint[] =
    "Install ripcord again: the folder 'libexec/ripcord/locale' is missing.";
#else
static bool locale_load(void)
{
    return setlocale(LC_CTYPE, "C.UTF-8");
}

static const char locale_hint[] = "Install the locale C.UTF-8, which is a part of glibc.";
#endif

int locale_use_utf8(struct err *err)
{
    if (locale_load())
        return 0;
    err_set(err, ERR_SYSTEM, "locale 'C.UTF-8': cannot be loaded");
    return err_hint(err, "%s", locale_hint);
}
