#include "cli/cache-mounts.h"

#include <stdio.h>

#include "cli/options.h"
#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

int cache_mounts_list(struct cli *cli, json_t **ret, struct err *err)
{
    return cli_call(cli, "GET", "/v1/caches/mounts", NULL, ret, err);
}

void cache_mounts_print(const json_t *doc)
{
    static const char *const titles[] = {"CACHE MOUNT", "SIZE", "USED"};
    const json_t *list = json_object_get(doc, "mounts"), *m;
    struct table *t;
    size_t i;

    if (json_array_size(list) == 0)
        return;
    t = table_new(titles, ARRAY_SIZE(titles));
    json_array_foreach (list, i, m) {
        char size[FORMAT_MAX], age[AGE_MAX], text[TIME_FORMAT_MAX];
        const char *at = time_format(json_number_of(m, "last_used") * USEC_PER_SEC, text);

        table_add(t, json_text_of(m, "id"));
        table_add(t, format_size(json_number_of(m, "bytes"), size));
        table_add(t, json_is_true(json_object_get(m, "in_use")) ? "now" : output_age(at, age));
    }
    table_print(t);
    table_free(t);
    putchar('\n');
}

void cache_mounts_print_sum(const json_t *doc)
{
    size_t n = json_array_size(json_object_get(doc, "mounts"));
    char bytes[FORMAT_MAX], budget[FORMAT_MAX];

    printf("build cache mounts: %zu, %s of %s\n", n,
           format_size(json_number_of(doc, "bytes"), bytes),
           format_size(json_number_of(doc, "budget"), budget));
}

int cache_mounts_prune(struct cli *cli, const json_t *body, json_t **ret, struct err *err)
{
    return cli_call(cli, "POST", "/v1/caches/mounts/prune", body, ret, err);
}

void cache_mounts_print_pruned(const json_t *doc)
{
    uint64_t n = json_number_of(doc, "removed");
    char bytes[FORMAT_MAX];

    printf("%llu cache mount%s removed, %s\n", (unsigned long long)n, n == 1 ? "" : "s",
           format_size(json_number_of(doc, "bytes"), bytes));
}

int cache_mounts_rm(struct cli *cli, const struct cli_args *args, struct err *err)
{
    if (args->n_words < 2) {
        err_set(err, ERR_INVALID, "the id of a cache mount is missing");
        return err_hint(err, "Run 'ripcord cache ls' to list the ids.");
    }
    for (int i = 1; i < args->n_words; i++) {
        _cleanup_free_ char *escaped = client_escape(args->words[i]);
        _cleanup_free_ char *target = xasprintf("/v1/caches/mounts?id=%s", escaped);
        _cleanup_json_ json_t *doc = NULL;
        int r = cli_call(cli, "DELETE", target, NULL, &doc, err);

        if (r < 0)
            return r;
        if (cli->json)
            output_json(doc);
        else
            cache_mounts_print_pruned(doc);
    }
    return 0;
}
