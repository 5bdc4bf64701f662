#include "lib/base/memory-release.h"

#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/macro.h"

enum { RANGES_MAX = 8 };

struct ranges {
    struct {
        void *from;
        size_t size;
    } at[RANGES_MAX];
    size_t n;
};

/* Only what is never written: the rest would come back as it was in the file. */
static int memory_release_collect(struct dl_phdr_info *info, size_t size _unused_, void *arg)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct ranges *r = arg;

    for (int i = 0; i < info->dlpi_phnum && r->n < RANGES_MAX; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        uintptr_t from = (info->dlpi_addr + h->p_vaddr) & ~(page - 1);
        uintptr_t to = info->dlpi_addr + h->p_vaddr + h->p_memsz;

        if (h->p_type != PT_LOAD || h->p_flags & PF_W)
            continue;
        r->at[r->n].from = (void *)from;
        r->at[r->n++].size = to - from;
    }
    return 0;
}

/* First all is known, then it goes: what is looked at in between would be mapped again. */
void memory_release(void)
{
    struct ranges r = {.n = 0};

    dl_iterate_phdr(memory_release_collect, &r);
    for (size_t i = 0; i < r.n; i++)
        madvise(r.at[i].from, r.at[i].size, MADV_DONTNEED);
}
