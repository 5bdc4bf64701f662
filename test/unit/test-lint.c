#include "tap.h"

#include <stdlib.h>

#include "image/lint/lint.h"
#include "lib/base/buf.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

static const struct lint_context plain = {.has_ignore_file = true};

static struct lint_report run(const char *text)
{
    struct lint_report r;

    lint_check(text, strlen(text), &plain, &r);
    return r;
}

/* The rules found, as "ID@LINE:COLUMN ID@…". */
static char *found(const char *text)
{
    struct lint_report r = run(text);
    struct buf b = BUF_INIT(1 << 16);

    for (size_t i = 0; i < r.n; i++) {
        struct dockerfile_pos pos = lint_pos(text, r.findings[i].at);

        (void)!buf_appendf(&b, "%s%s@%u:%u", i ? " " : "", r.findings[i].rule->id, pos.line,
                           pos.column);
    }
    lint_report_done(&r);
    return buf_steal(&b);
}

static char *fixed(const char *text)
{
    struct lint_report r = run(text);
    size_t len, n;
    char *out = lint_apply(text, strlen(text), &r, &len, &n);

    lint_report_done(&r);
    return out;
}

/* A RUN among lines without findings. */
#define HEAD "FROM debian:12\n"
#define TAIL "USER agent\n"

#define CHECK_RUN(middle, want)                                                                    \
    do {                                                                                           \
        char *got_ = found(HEAD middle TAIL);                                                      \
        bool same_ = strcmp(got_, want) == 0;                                                      \
        if (!same_)                                                                                \
            printf("# '%s' instead of '%s'\n", got_, want);                                        \
        free(got_);                                                                                \
        CHECK(same_);                                                                              \
    } while (0)

#define CHECK_FIX(before, after)                                                                   \
    do {                                                                                           \
        char *got_ = fixed(HEAD before TAIL);                                                      \
        bool same_ = strcmp(got_, HEAD after TAIL) == 0;                                           \
        if (!same_)                                                                                \
            printf("# '%s'\n", got_);                                                              \
        free(got_);                                                                                \
        CHECK(same_);                                                                              \
    } while (0)

#define PIP "RUN --mount=type=cache,target=/root/.cache/pip "
#define NPM "RUN --mount=type=cache,target=/root/.npm "
#define APT "RUN --mount=type=cache,target=/var/cache/apt rm -f /etc/apt/apt.conf.d/docker-clean; "

/* ---- caches ---- */

TEST(no_cache_dir_with_cache_mount_is_reported)
{
    struct lint_report r = run(HEAD PIP "pip install --no-cache-dir -r requirements.txt\n" TAIL);

    CHECK(r.n == 1);
    CHECK_STR(r.findings[0].rule->id, "cache-defeated");
    CHECK(r.findings[0].rule->severity == LINT_ERROR);
    CHECK(strstr(r.findings[0].message, "--no-cache-dir"));
    CHECK(strstr(r.findings[0].message, "/root/.cache/pip"));
    CHECK(r.findings[0].fix && r.findings[0].edit);
    lint_report_done(&r);
    CHECK_RUN(PIP "pip install --no-cache-dir -r requirements.txt\n", "cache-defeated@2:60");
    CHECK_RUN(PIP "pip install -r requirements.txt\n", "");
    CHECK_FIX(PIP "pip install --no-cache-dir -r requirements.txt\n",
              PIP "pip install -r requirements.txt\n");
}

TEST(pip_is_found_in_all_its_forms)
{
    CHECK_RUN(PIP "python3 -m pip install --no-cache-dir -r x\n", "cache-defeated@2:71");
    CHECK_RUN(PIP "cd /x && \\\n  /venv/bin/pip3.11 install -r x --no-cache-dir\n",
              "cache-defeated@3:34");
    CHECK_RUN(PIP "[\"pip\", \"install\", \"--no-cache-dir\", \"-r\", \"x\"]\n",
              "cache-defeated@2:67");
    CHECK_RUN(PIP "<<EOF\nset -e\npip install --no-cache-dir -r x\nEOF\n", "cache-defeated@4:13");
    CHECK_RUN(PIP "PIP_NO_CACHE_DIR=1 pip install -r x\n", "cache-defeated@2:48");
    CHECK_RUN("ENV PIP_NO_CACHE_DIR=1\n" PIP "pip install -r x\n", "cache-defeated@3:5");
    CHECK_RUN("ENV PIP_NO_CACHE_DIR=0\n" PIP "pip install -r x\n", "");
    CHECK_RUN(PIP "sudo -E pip install --no-cache-dir -r x\n", "cache-defeated@2:68");
    CHECK_RUN(PIP "pip install -r x && pip cache purge\n", "cache-defeated@2:68");
    CHECK_RUN(PIP "pip install -r x --cache-dir /tmp/c\n", "cache-unused@2:5 cache-defeated@2:65");
}

TEST(other_tools_defeat_their_mounts)
{
    CHECK_RUN(NPM "npm ci --no-cache\n", "cache-defeated@2:49");
    CHECK_RUN(NPM "npm ci && npm cache clean --force\n", "cache-defeated@2:52");
    CHECK_RUN(APT "apt-get install -y a=1 && apt-get clean\n", "cache-defeated@2:112");
    CHECK_RUN("RUN --mount=type=cache,target=/root/.cache/uv uv sync --no-cache\n",
              "cache-defeated@2:55");
    CHECK_RUN("RUN --mount=type=cache,target=/var/cache/apk apk add --no-cache git\n",
              "cache-defeated@2:54");
    CHECK_RUN("RUN --mount=type=cache,target=/var/cache/dnf dnf install -y x && dnf clean all\n",
              "cache-defeated@2:66");
}

TEST(removing_the_target_is_reported)
{
    CHECK_RUN("RUN --mount=type=cache,target=/var/lib/apt apt-get install -y a=1 && rm -rf "
              "/var/lib/apt/lists/*\n",
              "cache-defeated@2:77");
    CHECK_RUN(PIP "pip install -r x && rm -rf /root/.cache\n", "cache-defeated@2:75");
    CHECK_RUN(PIP "pip install -r x && rm -rf /tmp/*\n", "");
    CHECK_FIX(PIP "pip install -r x && \\\n    rm -rf /root/.cache\n", PIP "pip install -r x\n");
    CHECK_FIX(PIP "pip install -r x && rm -rf /root/.cache /tmp/y\n",
              PIP "pip install -r x && rm -rf /tmp/y\n");
}

TEST(docker_clean_is_reported)
{
    CHECK_RUN("RUN --mount=type=cache,target=/var/cache/apt apt-get install -y a=1\n",
              "cache-docker-clean@2:5");
    CHECK_RUN(APT "apt-get install -y a=1\n", "");
    CHECK_FIX(
        "RUN --mount=type=cache,target=/var/cache/apt apt-get install -y a=1\n",
        "RUN --mount=type=cache,target=/var/cache/apt rm -f /etc/apt/apt.conf.d/docker-clean; "
        "apt-get install -y a=1\n");
}

TEST(owner_of_a_mount)
{
    CHECK_RUN("USER 1000\nRUN --mount=type=cache,target=/c x\n", "cache-owner@3:5");
    CHECK_RUN("USER 1000\nRUN --mount=type=cache,target=/c,uid=1001 x\n", "cache-owner@3:5");
    CHECK_RUN("USER 1000:1000\nRUN --mount=type=cache,target=/c,uid=1000 x\n", "");
    CHECK_RUN("USER node\nRUN --mount=type=cache,target=/c,uid=1000 x\n", "");
    CHECK_RUN("USER root\nRUN --mount=type=cache,target=/c x\n", "");
}

TEST(unused_targets_are_reported)
{
    CHECK_RUN("RUN --mount=type=cache,target=/cache/pip pip install -r x\n", "cache-unused@2:5");
    CHECK_RUN("ENV PIP_CACHE_DIR=/cache/pip\n"
              "RUN --mount=type=cache,target=/cache/pip pip install -r x\n",
              "");
    CHECK_RUN("ENV PIP_CACHE_DIR=/cache/pip\n" PIP "pip install -r x\n", "cache-unused@3:5");
    CHECK_RUN("USER node\nRUN --mount=type=cache,target=/root/.npm,uid=1000 npm ci\n",
              "cache-unused@3:5");
    CHECK_RUN("USER node\nRUN --mount=type=cache,target=/home/node/.npm,uid=1000 npm ci\n", "");
}

TEST(installs_without_a_cache)
{
    CHECK_RUN("RUN pip install -r x\n", "no-cache@2:5");
    CHECK_RUN("RUN npm ci\n", "no-cache@2:5");
    CHECK_RUN("RUN apt-get update && apt-get install -y a=1\n", "no-cache@2:23");
    CHECK_RUN("RUN yarn\n", "no-cache@2:5");
    CHECK_RUN("RUN npm run build\n", "");
    CHECK_RUN("RUN echo pip install\n", "");
}

/* ---- versions ---- */

TEST(unpinned_versions)
{
    char *got =
        found("FROM debian\nFROM a/b:latest\nFROM x@sha256:1 AS s\nFROM s\nFROM scratch\nFROM "
              "r:5000/x\nUSER a\n");

    CHECK_STR(got, "unpinned-base@1:6 unpinned-base@2:6 unpinned-base@6:6");
    free(got);
    CHECK_RUN(PIP "pip install requests\n", "unpinned-pip@2:60");
    CHECK_RUN(PIP "pip install -U requests==1 './x' -c c.txt\n", "");
    CHECK_RUN(NPM "npm install -g typescript\n", "unpinned-npm@2:57");
    CHECK_RUN(NPM "npm install -g typescript@5.1 @a/b@1.2\n", "");
    CHECK_RUN(NPM "npm install -g @a/b\n", "unpinned-npm@2:57");
    CHECK_RUN(APT "apt-get install -y --no-install-recommends git\n", "unpinned-apt@2:129");
}

TEST(base_by_argument)
{
    char *got = found("ARG V=12\nFROM debian:${V}\nUSER a\n");

    CHECK_STR(got, "");
    free(got);
    got = found("ARG B\nFROM $B\nUSER a\n");
    CHECK_STR(got, "");
    free(got);
}

/* ---- secrets, shell, form ---- */

TEST(secrets)
{
    CHECK_RUN("ENV API_TOKEN=abc\n", "secret-variable@2:5");
    CHECK_RUN("ARG npm_password\n", "secret-variable@2:5");
    CHECK_RUN("ENV TOKEN_FILE=/run/x SECRET=\n", "");
    CHECK_RUN("COPY .env id_rsa.pub /app/\n", "secret-file@2:6");
    CHECK_RUN("COPY --from=x .env /app/\n", "");
    CHECK_RUN("COPY [\"keys/server.pem\", \"/\"]\n", "secret-file@2:7");
}

TEST(downloads_and_pipes)
{
    CHECK_RUN(
        "SHELL [\"/bin/bash\", \"-o\", \"pipefail\", \"-c\"]\nRUN curl -fsSL https://x | bash -s\n",
        "pipe-to-shell@3:5");
    CHECK_RUN("RUN set -o pipefail; wget -qO- https://x | tee y | sh\n", "pipe-to-shell@2:22");
    CHECK_RUN("RUN curl https://x | tar x\n", "no-pipefail@2:5");
    CHECK_RUN("RUN echo a | tee b\n", "");
    CHECK_RUN("RUN a || b\n", "");
    CHECK_RUN("RUN echo \"a | b\" 'c | d' $(e | f)\n", "");
}

TEST(order_and_context)
{
    struct lint_report r;
    static const struct lint_context none = {.has_ignore_file = false};
    static const char text[] = HEAD "COPY . /app\n" TAIL;

    CHECK_RUN("COPY . /app\n" PIP "pip install -r x\n", "copy-before-install@2:6");
    CHECK_RUN("COPY x /app/\n" PIP "pip install -r x\nCOPY . /app\n", "");
    lint_check(text, sizeof(text) - 1, &none, &r);
    CHECK(r.n == 1 && STREQ(r.findings[0].rule->id, "no-dockerignore"));
    lint_report_done(&r);
}

TEST(add_of_a_url)
{
    CHECK_RUN("ADD https://x/y /y\n", "add-url@2:5");
    CHECK_RUN("ADD --checksum=sha256:1 https://x/y /y\n", "");
    CHECK_RUN("ADD https://x/y.git /y\n", "");
}

TEST(root_user_is_reported)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"FROM a:1\n", "root-user@1:1"},           {"FROM a:1\nUSER root\n", "root-user@1:1"},
        {"FROM a:1\nUSER 0:0\n", "root-user@1:1"}, {"FROM a:1\nUSER 10\n", ""},
        {"FROM a:1 AS b\nUSER x\nFROM b\n", ""},   {"FROM a:1 AS b\nFROM c:1\nUSER x\n", ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char *got = found(cases[i].text);

        CHECK_STR(got, cases[i].want);
        free(got);
    }
}

TEST(deprecated_forms_are_repaired)
{
    CHECK_RUN("MAINTAINER me \"x\" <a@b>\n", "deprecated-maintainer@2:1");
    CHECK_FIX("MAINTAINER me \"x\"\n", "LABEL org.opencontainers.image.authors=\"me \\\"x\\\"\"\n");
    CHECK_RUN("ENV A b c\n", "deprecated-key-value@2:5");
    CHECK_FIX("ENV A b c\n", "ENV A=\"b c\"\n");
    CHECK_RUN("RUN a && \\\n\n    b\n", "empty-continuation@3:1");
    CHECK_FIX("RUN a && \\\n\n    b\n", "RUN a && \\\n    b\n");
}

TEST(syntax_is_a_finding)
{
    char *got = found("FROM a:1\nRNU x\n");

    CHECK_STR(got, "syntax@2:1");
    free(got);
    got = found("FROM a:1\nENV A=${x\nUSER a\n");
    CHECK_STR(got, "syntax@2:7");
    free(got);
}

/* ---- ignores ---- */

TEST(ignores)
{
    CHECK_RUN("# ripcord: ignore=no-cache\nRUN pip install -r x\n", "");
    CHECK_RUN("# ripcord: ignore=add-url,no-cache because\nRUN pip install -r x\n", "");
    CHECK_RUN("# ripcord: ignore=add-url\nRUN pip install -r x\n", "no-cache@3:5");
    CHECK_RUN("RUN a && \\\n    # ripcord: ignore=no-cache\n    pip install -r x\n", "");
    CHECK_RUN("# ripcord: ignore=no-cache\n\nRUN pip install -r x\n", "no-cache@4:5");
    CHECK_RUN("# ripcord: ignore-file=no-cache\n\nUSER root\nRUN pip install -r x\n", "");
    CHECK_RUN("RUN echo ripcord: ignore=no-cache; pip install -r x\n", "no-cache@2:36");
}

TEST(all_rules_have_ids)
{
    for (size_t i = 0; i < lint_n_rules; i++) {
        CHECK(lint_rules[i].id && lint_rules[i].summary);
        for (size_t k = 0; k < i; k++)
            CHECK(!STREQ(lint_rules[i].id, lint_rules[k].id));
    }
}
