#include "site.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/uio.h>

#include "lib/base/macro.h"

/* CALLERS is enough to distinguish sites; further up the stack are leftovers of earlier calls. */
enum { CALLERS = 8, STACK_WORDS = 512, MAPS_MAX = 128, PATH_SIZE = 32, REMEMBERED = 64 };

struct text {
    uint64_t start, end, offset;
};

/* Cached, because reading the maps is slow and a starting daemon makes tens of thousands of
 * calls. */
static struct maps {
    pid_t pid;
    size_t n;
    struct text texts[MAPS_MAX];
} remembered[REMEMBERED];

static uint64_t mix(uint64_t hash, uint64_t word)
{
    for (int i = 0; i < 8; i++, word >>= 8)
        hash = (hash ^ (word & 0xff)) * 0x100000001b3; /* FNV-1a */
    return hash;
}

static size_t read_maps(pid_t pid, struct text maps[static MAPS_MAX])
{
    char path[PATH_SIZE], line[512], mode[5];
    unsigned long long start, end, offset;
    size_t n = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    f = fopen(path, "re");
    while (f && n < MAPS_MAX && fgets(line, sizeof(line), f))
        if (sscanf(line, "%llx-%llx %4s %llx", &start, &end, mode, &offset) == 4 && mode[2] == 'x')
            maps[n++] = (struct text){start, end, offset};
    if (f)
        fclose(f);
    return n;
}

static struct maps *maps_of(pid_t pid)
{
    struct maps *maps = &remembered[(size_t)pid % REMEMBERED];

    if (maps->pid != pid) {
        maps->pid = pid;
        maps->n = read_maps(pid, maps->texts);
    }
    return maps;
}

void site_forget(void)
{
    for (size_t i = 0; i < REMEMBERED; i++)
        remembered[i].pid = 0;
}

/* Its place in the file, with the size of what is mapped in place of the file's name: the shim is a
 * memfd that each daemon makes anew. */
static bool add_word(uint64_t *hash, uint64_t word, const struct maps *maps)
{
    for (const struct text *t = maps->texts; t < maps->texts + maps->n; t++)
        if (word >= t->start && word < t->end) {
            *hash = mix(*hash, word - t->start + t->offset);
            *hash = mix(*hash, t->end - t->start);
            return true;
        }
    return false;
}

uint64_t site_of(pid_t pid, uint64_t nr, uint64_t ip, uint64_t sp)
{
    uint64_t words[STACK_WORDS], hash = mix(0xcbf29ce484222325, nr);
    const struct maps *maps = maps_of(pid);
    ssize_t got;

    /* Reads page by page: the end of the stack is unknown. */
    got = process_vm_readv(pid, &(struct iovec){words, sizeof(words)}, 1,
                           (struct iovec[]){{(void *)sp, 4096 - sp % 4096},
                                            {(void *)(sp + 4096 - sp % 4096), sp % 4096}},
                           2, 0);
    add_word(&hash, ip, maps);
    for (ssize_t i = 0, n = 0; i < got / (ssize_t)sizeof(words[0]) && n < CALLERS; i++)
        n += add_word(&hash, words[i], maps);
    return hash;
}
