/*
 * GET …/ports: the TCP ports on which processes of a sandbox listen. The helper that does file
 * operations inside the sandbox reads them from the kernel (files/ports.c).
 */
#include "daemon/api/port-list.h"

#include <stdlib.h>

#include "daemon/api/call.h"
#include "daemon/api/file-talk.h"
#include "daemon/core/sandbox/sandbox.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

enum { SUMMARY_MAX = 400 };

/* Lives until its talk has ended. */
struct port_summary {
    struct file_talk *talk;
    struct buf text;
    port_summary_fn done;
    void *arg;
};

/* Without a network namespace the kernel's tables are those of the machine. */
static int port_list_check(const struct sandbox *sb, struct err *err)
{
    if (sb->spec.isolation != SPEC_ISOLATION_CONFINED)
        return 0;
    err_set(err, ERR_UNSUPPORTED,
            "sandbox '%s': its ports cannot be listed, because it shares them with the machine "
            "(isolation 'confined')",
            sb->name);
    return err_hint(err, "Commands in it find their ports in $RIPCORD_PORTS.");
}

/* A sandbox that is down has no ports, and a question does not start it. */
static bool port_list_is_down(const struct sandbox *sb)
{
    return sb->state == SANDBOX_STOPPED || sb->state == SANDBOX_FAILED;
}

void handle_port_list(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = call_sandbox(c);

    if (!sb)
        return;
    if (port_list_check(sb, &err) < 0)
        call_reply_err(c, &err);
    else if (port_list_is_down(sb))
        call_reply(c, 200, json_pack("{s:[]}", "ports"));
    else
        handle_file_op(c);
}

/* ---- for messages ---- */

static bool port_summary_message(void *arg, const struct files_message *m, struct err *err)
{
    struct files_reader r = files_fields(m);
    struct port_summary *s = arg;
    uint64_t port = 0;
    struct files_field f, address = {.length = 0};
    int n;

    while ((n = files_next(&r, &f, err)) > 0)
        if (f.tag == FILES_TAG_PORT)
            port = f.u64;
        else if (f.tag == FILES_TAG_ADDRESS)
            address = f;
    /* What does not fit is left out. */
    if (m->type == FILES_ITEM && address.length)
        (void)!buf_appendf(&s->text, "%s%u (%.*s)", s->text.len ? ", " : "", (unsigned)port,
                           (int)address.length, address.data);
    return n >= 0;
}

static void port_summary_ended(void *arg, const struct err *err)
{
    struct port_summary *s = arg;

    s->done(s->arg, err ? NULL : buf_data(&s->text));
    buf_done(&s->text);
    free(s);
}

bool port_summary(struct api *a, const char *sandbox, port_summary_fn done, void *arg)
{
    static const struct file_talk_events events = {.message = port_summary_message,
                                                   .ended = port_summary_ended};
    _cleanup_buf_ struct buf w = BUF_INIT(FILES_HEAD_SIZE + FILES_MESSAGE_MAX);
    const struct sandbox *sb = manager_find(api_settings(a)->manager, sandbox, NULL);
    struct port_summary *s;
    const struct file_talk_config config = {.sandbox = sandbox,
                                            .request = &w,
                                            .events = &events,
                                            .arg = s = xnew0(struct port_summary)};

    s->text = (struct buf)BUF_INIT(SUMMARY_MAX);
    s->done = done;
    s->arg = arg;
    files_begin(&w, FILES_REQUEST);
    files_put_u64(&w, FILES_TAG_OP, FILES_PORTS);
    if (sb && port_list_check(sb, NULL) >= 0 && files_finish(&w, NULL) >= 0)
        s->talk = file_talk_start(a, &config, NULL);
    if (s->talk)
        return true;
    free(s);
    return false;
}
