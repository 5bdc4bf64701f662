/*
 * Index pages on disk. A stored page holds the rewritten page in each form that clients ask for, and
 * the list of its files with their digests and addresses. It is one file, which is replaced as a
 * whole; its mtime is when the upstream last confirmed it. Workers call these functions: no state is
 * shared.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "packages/digest.h"

enum { PAGE_SECTIONS_MAX = 4, PAGE_HEAD_MAX = 4 << 10 };
#define PAGE_MAX ((size_t)192 << 20)

/* Names of sections. */
#define PAGE_FILES "files"

struct page_section {
    const char *name;
    struct buf body; /* owned */
};

struct page_draft {
    const char *etag, *policy; /* borrowed; etag may be NULL */
    struct page_section sections[PAGE_SECTIONS_MAX];
    size_t n_sections;
};
struct buf *page_draft_add(struct page_draft *d, const char *name);
void page_draft_done(struct page_draft *d);
/* `path` is relative to the folder; its own folder exists. */
int page_write(int dirfd, const char *path, const struct page_draft *d, struct err *err);

struct page {
    int fd; /* owned, or -1 */
    int64_t fetched;
    char *etag, *policy; /* owned */
    struct {
        char name[16];
        uint64_t offset, length;
    } sections[PAGE_SECTIONS_MAX];
    size_t n_sections;
};
/* Returns 1, or 0 when the page is missing or damaged. */
int page_open(int dirfd, const char *path, struct page *ret);
void page_done(struct page *p);
/* Notes that the upstream has just confirmed the page. */
void page_touch(const struct page *p);
int page_read(const struct page *p, const char *section, struct buf *ret, struct err *err);

/* A line of the section `files`. */
struct page_file {
    const char *name, *version, *url; /* borrowed */
    struct digest digest;
    uint64_t size;    /* 0: not known */
    int64_t uploaded; /* -1: not known */
    struct digest metadata;
    bool has_metadata;
};
int page_file_add(struct buf *b, const struct page_file *f) _must_check_;
/* Finds a file by name in the text of the section, which it changes. False: not listed. */
bool page_file_find(struct buf *files, const char *name, struct page_file *ret);
