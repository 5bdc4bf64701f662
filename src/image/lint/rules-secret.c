/*
 * Secrets that stay in the image, where everybody who has it reads them.
 */
#include <ctype.h>
#include <fnmatch.h>
#include <string.h>

#include "image/lint/rules.h"
#include "lib/base/xalloc.h"

/* A name that holds one of the first and none of the second. */
static bool rules_secret_names_secret(const char *name)
{
    static const char *const yes[] = {"PASSWORD",   "PASSWD",  "SECRET",     "TOKEN",
                                      "API_KEY",    "APIKEY",  "ACCESS_KEY", "PRIVATE_KEY",
                                      "CREDENTIAL", "AUTH_KEY"};
    static const char *const no[] = {"_FILE", "_PATH", "PUBLIC", "_URL", "_NAME", "_ID"};
    _cleanup_free_ char *upper = xstrdup(name);
    bool found = false;

    for (char *c = upper; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        found |= strstr(upper, yes[i]) != NULL;
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        if (strstr(upper, no[i]))
            return false;
    return found;
}

static void rules_secret_check_variable(const struct lint_walk *w,
                                        const struct dockerfile_word *word, const char *name)
{
    const char *kind = dockerfile_kind_name(w->in->kind);

    if (!rules_secret_names_secret(name))
        return;
    lint_set_fix(lint_find(w, RULE_SECRET_VARIABLE, word->at, word->end,
                           "%s '%s' stays readable in the image%s", kind, name,
                           w->in->kind == DOCKERFILE_ARG ? "'s history" : ""),
                 "Use RUN --mount=type=secret,id=%s, or pass the value when the sandbox runs.",
                 name);
}

static void rules_secret_check_variables(const struct lint_walk *w)
{
    size_t step = w->in->kind == DOCKERFILE_ENV ? 2 : 1;

    for (size_t i = 0; i < w->in->n_words; i += step) {
        const struct dockerfile_word *word = &w->in->words[i];
        _cleanup_free_ char *name = xstrndup(word->text, strcspn(word->text, "="));
        struct dockerfile_word place = {NULL, word->at, word->at + strlen(name)};

        /* An empty value is a name that is kept free, and no secret. */
        if (step == 2 && (!*w->in->words[i + 1].text || STREQ(w->in->words[i + 1].text, "\"\"")))
            continue;
        rules_secret_check_variable(w, &place, name);
    }
}

static bool rules_secret_is_secret_file(const char *path)
{
    static const char *const names[] = {
        ".env",
        ".env.*",
        "id_rsa",
        "id_dsa",
        "id_ecdsa",
        "id_ed25519",
        "*.pem",
        "*.p12",
        "*.pfx",
        "*.key",
        ".npmrc",
        ".pypirc",
        ".netrc",
        ".git-credentials",
        "credentials",
        "credentials.json",
        ".aws",
        ".ssh",
        "kubeconfig",
        ".kube",
        ".docker",
        "*.kdbx",
        ".htpasswd",
        "secrets.*",
        "service-account*.json",
    };
    _cleanup_free_ char *copy = xstrdup(path);
    size_t n = strlen(copy);
    const char *slash, *name;

    while (n > 1 && copy[n - 1] == '/')
        copy[--n] = 0;
    slash = strrchr(copy, '/');
    name = slash ? slash + 1 : copy;
    if (!fnmatch("*.pub", name, 0) || !fnmatch("*.example", name, 0) ||
        !fnmatch("*.sample", name, 0))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (!fnmatch(names[i], name, 0))
            return true;
    return false;
}

static void rules_secret_check_files(const struct lint_walk *w)
{
    if (dockerfile_flag(w->in, "from"))
        return;
    for (size_t i = 0; i + 1 < w->in->n_words; i++)
        if (rules_secret_is_secret_file(w->in->words[i].text))
            lint_set_fix(
                lint_find(w, RULE_SECRET_FILE, w->in->words[i].at, w->in->words[i].end,
                          "'%s' looks like a secret, and stays in the image even if a later step "
                          "removes it",
                          w->in->words[i].text),
                "Use RUN --mount=type=secret, and add the file to .dockerignore.");
}

void rules_secret(const struct lint_walk *w)
{
    if (w->in->kind == DOCKERFILE_ENV || w->in->kind == DOCKERFILE_ARG)
        rules_secret_check_variables(w);
    if (w->in->kind == DOCKERFILE_COPY || w->in->kind == DOCKERFILE_ADD)
        rules_secret_check_files(w);
}
