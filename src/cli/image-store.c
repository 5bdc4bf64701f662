/* ripcord image import, ls, show, rm, prune: the image store of the daemon. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/image.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/sender.h"
#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/parse.h"
#include "lib/base/tree.h"
#include "lib/base/xalloc.h"

static int image_store_check_words(const struct cli_args *args, int min, int max, const char *usage,
                                   struct err *err)
{
    int n = args->n_words - 1;

    if (n >= min && n <= max)
        return 0;
    return err_set(err, ERR_INVALID, "usage: ripcord image %s", usage);
}

static char *image_store_target_of(const char *path, const char *name)
{
    _cleanup_free_ char *escaped = name ? client_escape(name) : NULL;

    return name ? xasprintf("%s?name=%s", path, escaped) : xstrdup(path);
}

/* ---- import ---- */

/* Sends an OCI layout folder as a tar archive. */
static int image_store_send_folder(struct sender *s, int dir, const char *path, struct err *err)
{
    struct tree_stats stats = {0};
    struct stat st;

    if (fstatat(dir, "oci-layout", &st, 0) < 0) {
        err_set(err, ERR_INVALID, "folder '%s' is not an OCI layout (no file 'oci-layout')", path);
        return err_hint(
            err,
            "Import a root file system as a tar archive: tar -C '%s' -c . | ripcord image "
            "import - NAME",
            path);
    }
    if (fchdir(dir) < 0)
        return err_sys(err, errno, "enter '%s'", path);
    return tree_to_tar(".", sender_write, s, &stats, err);
}

static int image_store_send_all(struct sender *s, const char *path, struct err *err)
{
    bool in = STREQ(path, "-");
    _cleanup_close_ int fd =
        in ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return tree_err(err, errno, "open '%s'", path);
    if (in && isatty(fd))
        return err_set(err, ERR_INVALID, "standard input is a terminal; expected an image archive");
    return S_ISDIR(st.st_mode) ? image_store_send_folder(s, fd, path, err)
                               : sender_pass_fd(s, fd, path, err);
}

void image_print_imported(const json_t *doc)
{
    const json_t *image, *name;
    size_t i, j;

    json_array_foreach (json_object_get(doc, "images"), i, image) {
        char size[FORMAT_MAX];

        output_text(stdout, json_text_of(image, "id"));
        json_array_foreach (json_object_get(image, "names"), j, name) {
            putchar(' ');
            output_text(stdout, json_string_value(name));
        }
        printf(": %llu layers (%llu new), %s\n",
               (unsigned long long)json_number_of(image, "layers"),
               (unsigned long long)json_number_of(image, "new_layers"),
               format_size(json_number_of(image, "bytes"), size));
        if (json_number_of(image, "dropped"))
            output_note(false, "skipped %llu devices, pipes or attributes",
                        (unsigned long long)json_number_of(image, "dropped"));
    }
}

int image_import(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    struct client *client;
    struct sender s;
    int r = image_store_check_words(args, 1, 2, "import FILE|DIR|- [NAME]", err);

    if (r < 0)
        return r;
    r = cli_client(cli, &client, err);
    if (r < 0)
        return r;
    sender_init(&s, client, "POST",
                image_store_target_of("/v1/images", args->n_words > 2 ? args->words[2] : NULL),
                cli->json);
    r = image_store_send_all(&s, args->words[1], err);
    r = sender_end(&s, r, err);
    sender_done(&s);
    if (r < 0 || client_receive(client, &doc, err) < 0)
        return err_wrap(err, "import '%s'", args->words[1]);
    if (cli->json)
        output_json(doc);
    else
        image_print_imported(doc);
    return 0;
}

/* ---- ls, show ---- */

static const char *image_store_size_of(const json_t *o, const char *key,
                                       char text[static FORMAT_MAX])
{
    return format_size(json_number_of(o, key), text);
}

static void image_store_add_image(struct table *t, const json_t *image)
{
    const json_t *names = json_object_get(image, "names");
    const char *id = json_text_of(image, "id");
    char bytes[FORMAT_MAX], own[FORMAT_MAX], age[AGE_MAX], layers[16];
    _cleanup_free_ char *shown = id ? xstrndup(id + MIN(strlen(id), (size_t)7), 12) : NULL;
    size_t i = 0;

    do {
        table_add(t, json_string_value(json_array_get(names, i)));
        table_add(t, shown);
        snprintf(layers, sizeof(layers), "%s%zu", json_text_of(image, "base") ? "host+" : "",
                 json_array_size(json_object_get(image, "layers")));
        table_add(t, layers);
        table_add(t, image_store_size_of(image, "bytes", bytes));
        table_add(t, image_store_size_of(image, "own_bytes", own));
        table_add(t, output_age(json_text_of(image, "imported"), age));
    } while (++i < json_array_size(names));
}

static void image_store_print_names(const json_t *image)
{
    const json_t *name;
    size_t i;

    json_array_foreach (json_object_get(image, "names"), i, name) {
        output_text(stdout, json_string_value(name));
        putchar('\n');
    }
}

int image_ls(struct cli *cli, const struct cli_args *args, struct err *err)
{
    static const char *const titles[] = {"NAME", "ID", "LAYERS", "SIZE", "OWN", "AGE"};
    _cleanup_json_ json_t *doc = NULL;
    struct table *t;
    const json_t *image;
    size_t i;
    char total[FORMAT_MAX];
    int r = image_store_check_words(args, 0, 0, "ls", err);

    if (r < 0)
        return r;
    r = cli_call(cli, "GET", "/v1/images", NULL, &doc, err);
    if (r < 0)
        return r;
    if (cli->json) {
        output_json(doc);
        return 0;
    }
    if (args_has(args, "quiet")) {
        json_array_foreach (json_object_get(doc, "images"), i, image)
            image_store_print_names(image);
        return 0;
    }
    t = table_new(titles, ARRAY_SIZE(titles));
    json_array_foreach (json_object_get(doc, "images"), i, image)
        image_store_add_image(t, image);
    table_print(t);
    table_free(t);
    printf("total: %s (shared layers counted once)\n", image_store_size_of(doc, "bytes", total));
    return 0;
}

static void image_store_print_list(const char *title, const json_t *list, const char *sep)
{
    const json_t *v;
    size_t i;

    if (!json_array_size(list))
        return;
    printf("%-10s", title);
    json_array_foreach (list, i, v) {
        if (i)
            fputs(sep, stdout);
        output_text(stdout, json_string_value(v));
    }
    putchar('\n');
}

static void image_store_print_text(const char *title, const char *text)
{
    if (!text)
        return;
    printf("%-10s", title);
    output_text(stdout, text);
    putchar('\n');
}

enum { MADE_BY_MAX = 160 };

/* Prints the beginning of the first line. --json has the full text. */
static void image_store_print_made_by(const char *text)
{
    size_t len = MIN(strcspn(text, "\n"), (size_t)MADE_BY_MAX);
    _cleanup_free_ char *line = NULL;

    while (len && (text[len] & 0xc0) == 0x80) /* do not cut a character */
        len--;
    line = xstrndup(text, len);
    output_text(stdout, line);
    puts(text[len] ? " …" : "");
}

static void image_store_print_history(const json_t *list)
{
    const json_t *line;
    size_t i;

    json_array_foreach (list, i, line) {
        const char *made_by = json_text_of(line, "created_by");
        char size[FORMAT_MAX];

        printf("%-10s%9s  ", i ? "" : "History",
               json_is_null(json_object_get(line, "bytes")) ? "?"
               : json_text_of(line, "layer") ? image_store_size_of(line, "bytes", size)
                                             : "-");
        image_store_print_made_by(made_by ? made_by : "-");
    }
}

static void image_store_print_image(const json_t *image)
{
    char text[FORMAT_MAX];

    image_store_print_text("Id", json_text_of(image, "id"));
    image_store_print_list("Names", json_object_get(image, "names"), "\n          ");
    image_store_print_text("Base", json_text_of(image, "base"));
    image_store_print_text("Platform", json_text_of(image, "architecture"));
    image_store_print_text("Created", json_text_of(image, "created"));
    image_store_print_text("Imported", json_text_of(image, "imported"));
    image_store_print_text("Size", image_store_size_of(image, "bytes", text));
    image_store_print_text("Own", image_store_size_of(image, "own_bytes", text));
    image_store_print_text("User", json_text_of(image, "user"));
    image_store_print_text("Workdir", json_text_of(image, "workdir"));
    image_store_print_list("Env", json_object_get(image, "env"), "\n          ");
    image_store_print_list("Entry", json_object_get(image, "entrypoint"), " ");
    image_store_print_list("Cmd", json_object_get(image, "cmd"), " ");
    image_store_print_list("Layers", json_object_get(image, "layers"), "\n          ");
    image_store_print_history(json_object_get(image, "history"));
}

int image_show(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_free_ char *target = NULL;
    int r = image_store_check_words(args, 1, 1, "show NAME", err);

    if (r < 0)
        return r;
    target = image_store_target_of("/v1/images/show", args->words[1]);
    r = cli_call(cli, "GET", target, NULL, &doc, err);
    if (r < 0)
        return r;
    if (cli->json)
        output_json(doc);
    else
        image_store_print_image(doc);
    return 0;
}

/* ---- rm, prune ---- */

static void image_store_print_removed(const json_t *doc)
{
    char bytes[FORMAT_MAX];

    printf("removed: %llu images, %llu layers, %s\n",
           (unsigned long long)json_number_of(doc, "images"),
           (unsigned long long)json_number_of(doc, "layers"),
           image_store_size_of(doc, "bytes", bytes));
}

/* Removes the images one by one and stops at the first failure. */
int image_rm(struct cli *cli, const struct cli_args *args, struct err *err)
{
    int r = image_store_check_words(args, 1, CLI_ANY, "rm NAME...", err);

    if (r < 0)
        return r;
    for (int i = 1; i < args->n_words; i++) {
        _cleanup_free_ char *target = image_store_target_of("/v1/images", args->words[i]);
        _cleanup_json_ json_t *doc = NULL;

        r = cli_call(cli, "DELETE", target, NULL, &doc, err);
        if (r < 0)
            return r;
        if (cli->json)
            output_json(doc);
        else
            image_store_print_removed(doc);
    }
    return 0;
}

int image_prune(struct cli *cli, const struct cli_args *args, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL, *body = json_object();
    int r = image_store_check_words(args, 0, 0, "prune", err);

    if (r < 0)
        return r;
    r = cli_call(cli, "POST", "/v1/images/prune", body, &doc, err);
    if (r < 0)
        return r;
    if (cli->json)
        output_json(doc);
    else
        image_store_print_removed(doc);
    return 0;
}
