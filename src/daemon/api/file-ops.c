/*
 * POST …/files/{stat,list,…}: one operation, a JSON object in and one out. The tables of
 * proto/files.h say which fields each has; nothing here knows a single operation but for its
 * name in the path.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/api/call.h"
#include "daemon/api/file-json.h"
#include "daemon/api/file-talk.h"
#include "daemon/api/routes.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

/* Ends with its talk, or when the client goes. */
struct file_op {
    struct api_call *call;
    struct file_talk *talk;
    const struct files_op_row *row;
    json_t *answer, *items; /* owned; items NULL: the operation has none */
    size_t bytes;
    bool done;
};

static void file_op_free(struct file_op *o)
{
    json_decref(o->answer);
    json_decref(o->items);
    free(o);
}

static bool file_op_take_item(struct file_op *o, const struct files_message *m, struct err *err)
{
    json_t *item;

    o->bytes += m->length;
    if (!o->items || o->bytes > FILES_ANSWER_MAX ||
        json_array_size(o->items) >= (size_t)2 * FILES_LIMIT_MAX * (2 * FILES_CONTEXT_MAX + 1))
        return err_set(err, ERR_INVALID, "the helper sent more than was asked for"), false;
    item = json_object();
    json_array_append_new(o->items, item);
    return file_json_answer(m, item, err) >= 0;
}

static bool file_op_message(void *arg, const struct files_message *m, struct err *err)
{
    struct file_op *o = arg;

    if (m->type == FILES_HEAD || o->done)
        return err_set(err, ERR_INVALID, "the helper sent message 0x%02x out of order", m->type),
               false;
    if (m->type == FILES_ITEM)
        return file_op_take_item(o, m, err);
    o->done = true;
    return file_json_answer(m, o->answer, err) >= 0;
}

static void file_op_ended(void *arg, const struct err *err)
{
    struct file_op *o = arg;
    _cleanup_err_ struct err none = ERR_INIT;

    o->call->on_gone = NULL;
    if (!err && !o->done)
        err_set(&none, ERR_ENGINE, "the helper inside the sandbox ended without an answer");
    if (o->items)
        json_object_set(o->answer, o->row->items, o->items);
    if (err || none.code)
        call_reply_err(o->call, err ? err : &none);
    else
        call_reply(o->call, 200, json_incref(o->answer));
    file_op_free(o);
}

static void file_op_gone(void *arg)
{
    struct file_op *o = arg;

    call_take_request(o->call);
    file_talk_drop(o->talk);
    file_op_free(o);
}

/* The last name of the route is the operation's. */
static enum files_op file_op_of(const struct route *route)
{
    return files_op_find(strrchr(route->pattern, '/') + 1);
}

void handle_file_op(struct api_call *call)
{
    static const struct file_talk_events events = {.message = file_op_message,
                                                   .ended = file_op_ended};
    enum files_op op = file_op_of(call->route);
    _cleanup_buf_ struct buf w = BUF_INIT(FILES_HEAD_SIZE + FILES_REQUEST_MAX);
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *user = NULL;
    struct file_op *o = xnew0(struct file_op);
    struct file_talk_config config = {
        .sandbox = call->params[0], .request = &w, .events = &events, .arg = o};

    o->row = files_op_row(op);
    o->answer = json_object();
    o->items = o->row->items ? json_array() : NULL;
    files_begin(&w, FILES_REQUEST);
    files_put_u64(&w, FILES_TAG_OP, op);
    if (file_json_request(op, call->body, &w, &user, &err) >= 0 && files_finish(&w, &err) >= 0) {
        config.user = user;
        config.writes = o->row->writes;
        o->talk = file_talk_start(call->api, &config, &err);
    }
    if (!o->talk) {
        call_reply_err(call, &err);
        file_op_free(o);
        return;
    }
    o->call = call;
    call->gone_arg = o;
    if (!call->key) /* with a key it goes on, so that its answer can be fetched */
        call->on_gone = file_op_gone;
}
