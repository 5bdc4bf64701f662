#include "lib/os/rlimit.h"

#include <errno.h>
#include <sys/resource.h>

int rlimit_set(int resource, uint64_t soft, uint64_t hard, struct err *err)
{
    struct rlimit old, new = {.rlim_cur = soft, .rlim_max = hard};

    if (getrlimit((__rlimit_resource_t)resource, &old) < 0)
        return err_sys(err, errno, "read resource limit %d", resource);
    if (old.rlim_max < new.rlim_max)
        new.rlim_max = old.rlim_max;
    if (new.rlim_cur > new.rlim_max)
        new.rlim_cur = new.rlim_max;
    if (setrlimit((__rlimit_resource_t)resource, &new) < 0)
        return err_sys(err, errno, "set resource limit %d", resource);
    return 0;
}
