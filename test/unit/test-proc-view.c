#include "supervisor/shim/proc-view.h"

#include "tap.h"

static cpu_set_t first(unsigned n)
{
    cpu_set_t s;

    CPU_ZERO(&s);
    for (unsigned i = 0; i < n; i++)
        CPU_SET(i, &s);
    return s;
}

TEST(meminfo_has_the_limit_and_a_fixed_length)
{
    _cleanup_buf_ struct buf a = BUF_INIT(4096), b = BUF_INIT(4096);

    CHECK(proc_view_meminfo(&a, 512ULL << 20, 0, 0) == 0);
    CHECK(proc_view_meminfo(&b, 512ULL << 20, 511ULL << 20, 0) == 0);
    CHECK(strstr(buf_data(&a), "MemTotal:            524288 kB\n"));
    CHECK(strstr(buf_data(&b), "MemAvailable:          1024 kB\n"));
    CHECK(a.len == b.len);
}

TEST(cache_is_available_but_not_free)
{
    _cleanup_buf_ struct buf a = BUF_INIT(4096);

    CHECK(proc_view_meminfo(&a, 512ULL << 20, 300ULL << 20, 200ULL << 20) == 0);
    CHECK(strstr(buf_data(&a), "MemFree:             217088 kB\n"));
    CHECK(strstr(buf_data(&a), "MemAvailable:        421888 kB\n"));
    CHECK(strstr(buf_data(&a), "Cached:              204800 kB\n"));
}

TEST(used_over_the_limit_leaves_nothing)
{
    _cleanup_buf_ struct buf a = BUF_INIT(4096);

    CHECK(proc_view_meminfo(&a, 1 << 20, 2 << 20, 0) == 0);
    CHECK(strstr(buf_data(&a), "MemFree:                  0 kB\n"));
}

TEST(cpuinfo_is_cut)
{
    static const char host[] = "processor\t: 0\nflags\t: a\n\nprocessor\t: 1\n\nprocessor\t: 2\n\n";
    _cleanup_buf_ struct buf one = BUF_INIT(4096), many = BUF_INIT(4096);

    CHECK(proc_view_cpuinfo(&one, host, 1) == 0);
    CHECK_STR(buf_data(&one), "processor\t: 0\nflags\t: a\n\n");
    CHECK(proc_view_cpuinfo(&many, host, 9) == 0);
    CHECK_STR(buf_data(&many), host);
}

TEST(cpu_count_is_rounded_up_and_bounded)
{
    cpu_set_t four = first(4);

    CHECK(proc_view_cpu_count(500, &four) == 1);
    CHECK(proc_view_cpu_count(1001, &four) == 2);
    CHECK(proc_view_cpu_count(9000, &four) == 4);
    CHECK(proc_view_cpu_count(0, &four) == 4);
}

TEST(affinity_is_spread)
{
    cpu_set_t four = first(4), got;

    for (uint32_t salt = 0; salt < 8; salt++) {
        proc_view_affinity(&four, 2, salt, &got);
        CHECK(CPU_COUNT(&got) == 2 && CPU_ISSET(salt % 4, &got));
    }
}
