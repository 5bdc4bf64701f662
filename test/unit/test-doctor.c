/* The doctor on this machine: every line is whole, and what is tried leaves nothing behind. */
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "daemon/engine/native/doctor.h"
#include "daemon/engine/native/ids.h"
#include "daemon/engine/native/kernel-probe.h"
#include "daemon/engine/native/probe.h"
#include "lib/base/fd.h"
#include "tap.h"

static int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    if (!d)
        return -1;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

TEST(lines_are_whole)
{
    struct doctor_report r = DOCTOR_REPORT_INIT;
    char dir[] = "/tmp/ripcord-doctor-XXXXXX";

    CHECK(mkdtemp(dir));
    native_doctor(dir, &r);
    CHECK(r.n >= 12 && entries(dir) == 2);
    for (size_t i = 0; i < r.n; i++) {
        const struct doctor_line *l = &r.lines[i];

        printf("# %-4s %s: %s%s%s\n", doctor_status_name(l->status), l->name, l->detail,
               l->fix ? " | " : "", l->fix ? l->fix : "");
        CHECK(*l->name && *l->detail);
        CHECK((l->fix != NULL) == (l->status != DOCTOR_OK));
    }
    doctor_report_done(&r);
    rmdir(dir);
}

TEST(a_kernel_probe_that_cannot_work_says_why)
{
    _cleanup_err_ struct err err = ERR_INIT;
    bool ranges = probe_id_ranges(IDS_FIRST, IDS_COUNT);

    CHECK(kernel_probe_overlay("/nonexistent", ranges, &err) < 0);
    CHECK(strstr(err.msg, "/nonexistent"));
    err_done(&err);
    CHECK(kernel_probe_overlay("/proc", ranges, &err) < 0 && *err.msg);
}
